// SPDX-License-Identifier: MIT
// A program that keeps a flight recording of its own: what it did last is in a file when it crashes.
//
//   c++ -std=c++20 -O2 flight_recorder.cpp -o shop $(pkg-config --cflags --libs uprobe)
//   printf 'plum 3\npear 0\n' | ./shop shop.rec
//   uprobe-run --replay=shop.rec
#include <uprobe/marker.h>
#include <uprobe/recorder.h>

#include <iostream>
#include <string>

static int price_of(const std::string& what, int count) {
  UPROBE_MARK(shop, asked, "count=%d what=%s", count, what.c_str());
  return 1000 / count;
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: shop RECORDING\n", 2;
  auto recorder = libuprobe::Recorder::start({.definitions = {std::string(argv[0]) + ":mark:shop:*"}}, argv[1]);
  if (!recorder) std::cerr << recorder.error().message() << '\n';  // it sells all the same
  std::string what;
  for (int count = 0; std::cin >> what >> count;) std::cout << price_of(what, count) << std::endl;
  return 0;
}
