package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A change is found only by tests that run the changed line. So each test is run once with
// coverage, and each change is tried with the tests that reach it.

// timedTest is a test of the package.
type timedTest struct {
	name   string
	quick  bool // takes no time
	blocks []block
}

// block is a part of a file that has run or not.
type block struct {
	file               string // without its folder
	line, column       int
	endLine, endColumn int
	ran                bool
}

// passed is the line of a test that has passed.
var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([\d.]+)s\)$`)

// time runs the tests without a change. They must pass.
func (s *suite) time(ctx context.Context) error {
	output, err := s.test(ctx, s.binary, 0, "-test.short", "-test.v", "-test.timeout=0")
	if err != nil {
		return fmt.Errorf("the tests of %s fail without a change: %w\n%s", s.p.dir, err, output)
	}
	for _, match := range passed.FindAllSubmatch(output, -1) {
		seconds, err := strconv.ParseFloat(string(match[2]), 64)
		s.tests = append(s.tests, timedTest{name: string(match[1]), quick: err == nil && seconds < 0.05})
	}
	return nil
}

// cover notes which blocks each test reaches.
func (s *suite) cover(ctx context.Context) error {
	binary, profile := filepath.Join(s.dir, "cover.test"), filepath.Join(s.dir, "cover.out")
	if output, err := s.build(ctx, binary, nil, "-cover"); err != nil {
		return fmt.Errorf("compiling %s for coverage: %w\n%s", s.p.dir, err, output)
	}
	for i, t := range s.tests {
		output, err := s.test(ctx, binary, 0, "-test.short", "-test.timeout=0", "-test.run", "^"+t.name+"$", "-test.coverprofile", profile)
		if err != nil {
			return fmt.Errorf("%s fails by itself: %w\n%s", t.name, err, output)
		}
		raw, err := os.ReadFile(profile)
		if err != nil {
			return err
		}
		s.tests[i].blocks = parseProfile(string(raw))
	}
	return nil
}

// parseProfile returns the blocks of a profile of go test.
func parseProfile(profile string) (blocks []block) {
	for line := range strings.Lines(profile) {
		path, rest, _ := strings.Cut(line, ":")
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.line, &b.column, &b.endLine, &b.endColumn, &statements, &count); err == nil {
			b.file, b.ran = filepath.Base(path), count > 0
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// holds reports whether a change is in the block.
func (b block) holds(c change) bool {
	after := c.line > b.line || c.line == b.line && c.column >= b.column
	before := c.line < b.endLine || c.line == b.endLine && c.column < b.endColumn
	return b.file == filepath.Base(c.file.path) && after && before
}

// reaches reports whether the test runs the line of a change. What is in no block is
// initialised before each test.
func (t timedTest) reaches(c change) bool {
	inBlock := false
	for _, b := range t.blocks {
		if b.holds(c) {
			if b.ran {
				return true
			}
			inBlock = true
		}
	}
	return !inBlock
}

// reaching returns patterns of the tests that reach a change: the quick ones, which find
// most changes, and the others.
func (s *suite) reaching(c change) (patterns []string) {
	for _, quick := range []bool{true, false} {
		var names []string
		for _, t := range s.tests {
			if t.quick == quick && t.reaches(c) {
				names = append(names, t.name)
			}
		}
		if len(names) > 0 {
			patterns = append(patterns, "^("+strings.Join(names, "|")+")$")
		}
	}
	return patterns
}
