# SPDX-License-Identifier: MIT
"""The folders are layers: this test reads every #include line and enforces their order. Also: the length of files, and
the users of each foreign library.
"""
import os
import re

import harness

# A room of arch/MACHINE is "arch/ROOM", as #include lines have it: CMake chooses the machine.
# A folder may include itself and every layer with a smaller number. Folders of one number do not see each other.
LAYERS = {
    "arch/shared": 0,
    "engine/shared": 1, "engine/base": 1,
    "engine/names": 2, "engine/facts": 2, "arch/abi": 2,
    "engine/elf": 3, "engine/lex": 3, "engine/proxy": 3, "arch/code": 3,
    "engine/target": 4, "engine/spec": 4, "engine/flow": 4,
    "engine/program": 5, "engine/dwarf": 5, "engine/marker": 5,
    "engine/plan": 6, "engine/trace": 6,
    "engine/output": 7, "engine/mailbox": 7, "engine/search": 7,
    "engine/summary": 8,
    "engine": 7,  # types.h: the facade's vocabulary
    "engine/ipc": 8, "engine/process": 8, "engine/pictures": 8, "engine/pairs": 8, "engine/export": 9,
    "engine/symbolize": 9, "engine/patch": 9,
    "engine/inject": 10, "engine/recording": 10,
    "engine/arm": 11,
    "engine/resolve": 12, "engine/attach": 12, "engine/generated": 12,
    "engine/service": 13, "engine/doctor": 13,
    "engine/rings": 9,
    "engine/session": 14,
    "cli": 15,
    "library/uprobe": 0,  # what is installed: nothing but the standard's
    "library": 15, "library/examples": 15,
}
# What runs inside the traced program sees the shared structs and itself.
IN_TARGET = {"preload", "arch/entry"}
SHARED = {"engine/shared", "arch/shared"}
# Header-only parts of the language; kernel headers are constants and structs of the ABI.
IN_TARGET_SYSTEM = re.compile(r"(?:cstddef|cstdint|type_traits|bit|utility|(?:linux|asm|asm-generic)/[\w/]+\.h)")
# Foreign library -> the only places that include it
FOREIGN = {
    r"[Zz]y(?:dis|core)/.*": ["arch/x86/code/decode.cpp", "arch/x86/code/scan.cpp", "arch/x86/code/zydis.h"],
    r"(?:libelf|gelf)\.h": ["engine/elf/"],
    r"lzma\.h": ["engine/elf/debug_names.cpp"],
    r"zlib\.h": ["engine/pictures/deflate.cpp"],
    r"(?:elfutils/.*|dwarf)\.h": ["engine/dwarf/"],
    r"capstone/.*": [],  # the second opinion of the tests
}
ROOTS = ("engine", "arch", "preload", "cli", "library")
LONGEST_FILE = 600
MOST_FILES = 30  # of one folder


def source_files(roots, endings):
    for root in roots:
        for folder, _, names in os.walk(os.path.join(harness.Options.source, root)):
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(folder, name), harness.Options.source)


def read(path):
    with open(os.path.join(harness.Options.source, path), encoding="utf-8") as file:
        return file.read()


def includes(path):
    """(project header, None) or (None, system header) of each #include."""
    for quote, name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', read(path), re.M):
        if quote == "<":
            yield None, name
            continue
        beside = os.path.join(os.path.dirname(path), name)
        exists = os.path.exists(os.path.join(harness.Options.source, beside))
        yield (os.path.normpath(beside) if exists and "/" not in name else name), None


def machines():
    return sorted(os.listdir(os.path.join(harness.Options.source, "arch")))


def files_of(path, header):
    """The files that an #include line of `path` names: one, or one of each machine."""
    if not header.startswith("arch/"):
        return [header]
    own = [path.split("/")[1]] if path.startswith("arch/") else machines()
    return [f"arch/{machine}/{header.removeprefix('arch/')}" for machine in own]


def folder_of(path):
    """Of a source file, or of a header as it is included."""
    parts = os.path.dirname(path).split("/")
    if parts[0] == "arch" and len(parts) > 2 and parts[1] in machines():
        del parts[1]
    return "/".join(parts)


class IncludeRules(harness.TestCase):
    def sources(self):
        files = list(source_files(ROOTS, (".h", ".cpp", ".c", ".S")))
        self.assertGreater(len(files), 20, "no sources found: wrong --source?")
        return files

    def test_every_folder_is_in_the_table(self):
        unknown = {folder_of(path) for path in self.sources()} - set(LAYERS) - IN_TARGET
        self.assertEqual(unknown, set())

    def test_layers_include_only_what_is_below(self):
        broken = []
        for path in self.sources():
            own = folder_of(path)
            if own not in LAYERS:
                continue
            for header, _ in includes(path):
                there = header and folder_of(header)
                if there and there != own and not LAYERS.get(there, 99) < LAYERS[own]:
                    broken.append(f"{path}: {header}")
        self.assertEqual(broken, [])

    def test_no_header_includes_itself_by_way_of_others(self):
        graph = {path: [file for header, _ in includes(path) if header for file in files_of(path, header)]
                 for path in self.sources() if path.endswith(".h")}
        finished, circles = set(), []

        def walk(path, way):
            if path in way:
                circles.append(" -> ".join([*way[way.index(path):], path]))
            elif path not in finished:
                for header in graph.get(path, ()):
                    walk(header, [*way, path])
                finished.add(path)

        for path in graph:
            walk(path, [])
        self.assertEqual(circles, [])

    def test_libraries_link_only_what_is_below(self):
        folders, broken = {}, []
        lists = [path for path in source_files(["engine"], ("CMakeLists.txt",)) if path.count("/") == 2]
        for path in lists:
            for name in re.findall(r"uprobe_library\((\w+)", read(path)):
                folders[name] = os.path.dirname(path)
        self.assertEqual(sorted(folders.values()), sorted(os.path.dirname(path) for path in lists))
        for path in lists:
            own = os.path.dirname(path)
            for name in re.findall(r"\buprobe_\w+", read(path)):
                there = folders.get(name, own)
                if there != own and not LAYERS[there] < LAYERS[own]:
                    broken.append(f"{path}: {name}")
        self.assertEqual(broken, [])

    def test_folders_are_small(self):
        sizes = {}
        for path in source_files(["engine"], (".h", ".cpp")):
            sizes[folder_of(path)] = sizes.get(folder_of(path), 0) + 1
        large = [f"{folder}: {count}" for folder, count in sizes.items() if count > MOST_FILES]
        self.assertEqual(large, [])
        self.assertLessEqual(sizes["engine"], 2)

    def test_project_headers_exist(self):
        missing = [f"{path}: {header}" for path in self.sources() for header, _ in includes(path)
                   if header and not all(os.path.exists(os.path.join(harness.Options.source, file))
                                         for file in files_of(path, header))]
        self.assertEqual(missing, [])

    def test_shared_includes_only_itself_and_integers(self):
        broken = [f"{path}: {header or system}" for path in self.sources() if folder_of(path) in SHARED
                  for header, system in includes(path)
                  if (header and folder_of(header) not in SHARED) or (system and system not in ("cstddef", "cstdint"))]
        self.assertEqual(broken, [])

    def test_code_in_the_target_includes_no_tool_code(self):
        broken = []
        for path in self.sources():
            if folder_of(path) not in IN_TARGET:
                continue
            for header, system in includes(path):
                if header and folder_of(header) not in IN_TARGET | SHARED:
                    broken.append(f"{path}: {header}")
                if system and not IN_TARGET_SYSTEM.fullmatch(system):
                    broken.append(f"{path}: <{system}>")
        self.assertEqual(broken, [])

    def test_the_tool_includes_no_code_of_the_target(self):
        broken = [f"{path}: {header}" for path in self.sources() if folder_of(path) not in IN_TARGET
                  for header, _ in includes(path) if header and folder_of(header) in IN_TARGET]
        self.assertEqual(broken, [])

    def test_foreign_libraries_have_one_place(self):
        broken = []
        for path in self.sources():
            for _, system in includes(path):
                for pattern, places in FOREIGN.items():
                    if system and re.fullmatch(pattern, system) and not path.startswith(tuple(places)):
                        broken.append(f"{path}: <{system}>")
        self.assertEqual(broken, [])

    def test_files_are_short(self):
        endings = (".h", ".cpp", ".c", ".S", ".py", ".sh")
        lines = {path: read(path).count("\n") for path in source_files([*ROOTS, "tests", "bench", "scripts"], endings)}
        long = [f"{path}: {count}" for path, count in lines.items() if count > LONGEST_FILE]
        self.assertEqual(long, [])

    def test_headers_say_what_they_are_for(self):
        """A comment follows the licence, and a header is included once."""
        broken = [path for path in source_files(ROOTS, (".h",))
                  if not read(path).partition("\n")[2].startswith("//") or "#pragma once" not in read(path)]
        self.assertEqual(broken, [])

    def test_files_name_their_licence(self):
        paths = [*source_files([*ROOTS, "tests", "bench", "scripts"], (".h", ".cpp", ".S", ".py")),
                 *source_files([*ROOTS, "tests", "bench", "cmake"], ("CMakeLists.txt", ".cmake"))]
        unnamed = [path for path in paths if not re.search("/(fixtures|data)/", path)
                   and "SPDX-License-Identifier: MIT" not in read(path)[:100]]
        self.assertEqual(unnamed, [])


if __name__ == "__main__":
    harness.main()
