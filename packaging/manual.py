#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the manual pages, from what there is already: uprobe-run(1) from the tool's --help, uprobe-definitions(5) from the guide,
uprobe-session(3) from the library's header.

    manual.py --tool build/uprobe-run --source . --version 0.2.0 FOLDER
"""
import argparse
import datetime
import gzip
import os
import re
import subprocess
import textwrap

OPTION = re.compile(r"  (?:-(?P<letter>\w), |    )--(?P<name>[\w-]+)(?P<argument>\[?=\S+)?(?:  +(?P<text>\S.*))?")


def plain(text):
    """No escapes and no requests for roff."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e"), flags=re.M)


def escaped(text):
    """Plain text: what looks like an option has a minus, and no hyphen."""
    return re.sub(r"(?<![\w\\])-(?=[-\w])", r"\\-", plain(text))


def verbatim(text):
    """With characters that can be copied into a shell."""
    text = plain(text).replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    return re.sub(r"(?<!^\\&)'", "\\\\(aq", text, flags=re.M)


def bold(text):
    return rf"\fB{verbatim(text)}\fR"


def inline(text):
    """A paragraph of Markdown: `code`, **bold**, *emphasis*, [text](place)."""
    parts = re.split(r"(`[^`]+`|\*\*.+?\*\*|\[[^\]]+\]\([^)]+\))", text)
    done = ""
    for part in parts:
        link = re.fullmatch(r"\[([^\]]+)\]\([^)]+\)", part)
        if part.startswith("`") and len(part) > 1:
            done += bold(part[1:-1])
        elif part.startswith("**") and len(part) > 4:
            done += bold(part[2:-2])
        else:
            done += re.sub(r"(?<!\w)\*(\w[^*]*)\*", r"\\fI\1\\fR", escaped(link[1] if link else part))
    return re.sub(r"^([.'])", r"\\&\1", done)


def block(lines):
    """Lines as they are."""
    return [".PP", ".RS 4", ".nf", *[verbatim(line) or r"\&" for line in lines], ".fi", ".RE"]


def table(rows):
    """Each row is an entry: its first cell, and what the others say."""
    entries = []
    for row in rows[2:]:
        head, *rest = [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]
        entries += [".TP", inline(head), inline(". ".join(rest)) or r"\&"]
    return entries


def markdown(text):
    """Markdown as this project writes it: headings, paragraphs, indented code, tables, lists."""
    page, lines, at = [], text.split("\n"), 0

    def taken(belongs):
        nonlocal at
        begin = at
        while at < len(lines) and belongs(lines[at]):
            at += 1
        return lines[begin:at]

    while at < len(lines):
        line = lines[at]
        if line.startswith("#"):
            level, title = line.split(" ", 1)
            page.append(f'.{"SH" if len(level) == 2 else "SS"} "{inline(title).upper() if len(level) == 2 else inline(title)}"')
            at += 1
        elif line.startswith("    "):
            code = taken(lambda each: each.startswith("    ") or not each)
            while not code[-1]:
                code.pop()
            page += block([each[4:] for each in code])
        elif line.startswith("|"):
            page += table(taken(lambda each: each.startswith("|")))
        elif line.startswith("- "):
            item = [line[2:]]
            at += 1
            item += [each.strip() for each in taken(lambda each: each.startswith("  ") and each.strip())]
            page += [r".IP \(bu 2", inline(" ".join(item))]
        elif line:
            text = " ".join(taken(lambda each: each and not re.match(r"#|    |\||- ", each)))
            page += [] if page and page[-1].startswith((".SH", ".SS")) else [".PP"]
            page.append(inline(text))
        else:
            at += 1
    return without_first_breaks(page)


def without_first_breaks(page):
    """No .PP where a section begins."""
    return [line for at, line in enumerate(page) if line != ".PP" or at == 0 or not page[at - 1].startswith((".SH", ".SS"))]


def sections(text, *wanted):
    """The `## ` sections of these names, with their headings."""
    found = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", text, flags=re.M)[1:]}
    return "\n".join(f"## {found[name]}" for name in wanted)


def title(name, section, about, options):
    newest = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.datetime.fromtimestamp(int(newest) if newest else os.path.getmtime(os.path.join(options.source, "CHANGELOG.md")),
                                          datetime.timezone.utc).strftime("%Y-%m-%d")
    return [f'.TH {name.upper()} {section} "{day}" "uprobe-run {options.version}" "uprobe-run"', ".SH NAME", rf"{name} \- {about}"]


def option_entries(lines):
    """The options of one group of the help."""
    page = []
    for line in lines:
        option = OPTION.fullmatch(line)
        if option:
            letter = bold("-" + option["letter"]) + ", " if option["letter"] else ""
            argument = re.sub(r"[A-Z]+", lambda word: rf"\fI{word[0]}\fR", option["argument"] or "")
            page += [".TP", f"{letter}{bold('--' + option['name'])}{argument}", escaped(option["text"] or r"")]
        elif line.strip():
            page.append(escaped(line.strip()))
    return [line for line in page if line]


def command_page(options):
    text = subprocess.run([options.tool, "--help"], check=True, capture_output=True, text=True).stdout
    usage, rest = re.split(r"\n(?=\S)", text, maxsplit=1)
    groups = re.split(r"^(\w[\w ]*):\n", rest, flags=re.M)
    page = title("uprobe-run", 1, "trace programs with uprobes, without the kernel's help", options)
    page += [".SH SYNOPSIS", ".nf", *[verbatim(line.replace("Usage:", "      ").strip()) for line in usage.split("\n")], ".fi"]
    page += [".SH DESCRIPTION", escaped(groups[0].strip()), ".SH OPTIONS"]
    for name, body in zip(groups[1::2], groups[2::2]):
        lines = body.split("\n")
        if name == "Examples":
            page += [".SH EXAMPLES", *block([line.strip() for line in lines if line])[1:]]
            continue
        tail = next((at for at, line in enumerate(lines) if line.startswith("A definition:")), len(lines))
        page += [f'.SS "{name}"', *option_entries(lines[:tail])]
        if tail < len(lines):
            status = next(at for at, line in enumerate(lines) if line.startswith("Exit status:"))
            form = [line.replace("A definition:", " " * 13) for line in lines[tail:status]]
            page += [".SH DEFINITIONS", *block([line[14:] for line in form])[1:], ".PP", "See \\fBuprobe\\-definitions\\fR(5)."]
            page += [".SH \"EXIT STATUS\"", escaped(" ".join(lines[status:]).replace("Exit status:", "").strip())]
    with open(os.path.join(options.source, "docs/preload.md"), encoding="utf-8") as file:
        page += [".SH ENVIRONMENT", "For \\fBLD_PRELOAD=libuprobe.so\\fR, without this command:"]
        page += table([line for line in file.read().split("\n") if line.startswith("|")])
    return page + [".SH \"SEE ALSO\"", "\\fBuprobe\\-definitions\\fR(5), \\fBuprobe\\-session\\fR(3), \\fBgdb\\fR(1), \\fBstrace\\fR(1)"]


def definitions_page(options):
    page = title("uprobe-definitions", 5, "the language of uprobe-run's probes", options)
    page += [".SH DESCRIPTION", "A definition says where to probe and what to record: the options \\fB\\-p\\fR, \\fB\\-r\\fR and "
             "\\fB\\-i\\fR of \\fBuprobe\\-run\\fR(1), a file of definitions, and \\fBlibuprobe::Options\\fR of "
             "\\fBuprobe\\-session\\fR(3) have them."]
    for name, wanted in (("guide", ("Definitions", "By line, by variable, by prototype", "Returns")), ("filters-and-triggers", ())):
        with open(os.path.join(options.source, f"docs/{name}.md"), encoding="utf-8") as file:
            text = file.read().replace("build/uprobe-run", "uprobe-run")
        page += markdown(sections(text, *wanted) if wanted else re.sub(r"^# ", "## ", text))
    return page + [".SH \"SEE ALSO\"", "\\fBuprobe\\-run\\fR(1), \\fBuprobe\\-session\\fR(3)"]


def session_page(options):
    with open(os.path.join(options.source, "library/uprobe/session.h"), encoding="utf-8") as file:
        comment, code = file.read().split("#pragma once", 1)
    about = [re.sub(r"^// ?", "", line) for line in comment.strip().split("\n")[1:]]
    # two blanks begin code in the header's comment, four in Markdown
    text = "\n".join("  " + line if line.startswith("  ") else line for line in about)
    page = title("uprobe-session", 3, "probe programs and processes from C++", options)
    page += [".SH SYNOPSIS", *block(["#include <uprobe/session.h>", "", "c++ -std=c++20 test.cpp $(pkg-config --cflags --libs uprobe)"])[1:]]
    page += [".SH DESCRIPTION", *without_first_breaks([".SH", *markdown(text)])[1:]]
    page += [".SH INTERFACE", *block(code[code.index("namespace libuprobe"):].rstrip().split("\n"))[1:]]
    return page + [".SH \"SEE ALSO\"", "\\fBuprobe\\-run\\fR(1), \\fBuprobe\\-definitions\\fR(5)"]


def folded(page):
    """Text in lines of 80 columns, as mandoc(1) asks; code as it is."""
    is_code = False
    for line in page:
        is_code = line == ".nf" or (is_code and line != ".fi")
        if is_code or line.startswith("."):
            yield line
        else:
            yield from (re.sub(r"^([.'])", r"\\&\1", each)
                        for each in textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("folder")
    options = parser.parse_args()
    for name, page in (("uprobe-run.1", command_page), ("uprobe-definitions.5", definitions_page), ("uprobe-session.3", session_page)):
        text = "\n".join(folded(page(options))) + "\n"
        with open(os.path.join(options.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(options.folder, name + ".gz"), "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
