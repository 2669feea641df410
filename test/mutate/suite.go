package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// suite is the compiled tests of a package.
type suite struct {
	p       *pkg
	timeout time.Duration // of the tests of one change
	full    bool          // run the slow tests, too
	dir     string        // for files of its own
	binary  string        // has all changes with a number
	numbers map[string]int
	tests   []timedTest
}

// newSuite compiles the package with those of the changes that can be switched.
func newSuite(ctx context.Context, p *pkg, changes []change, timeout time.Duration, full bool, dir string) (*suite, error) {
	s := &suite{p: p, timeout: timeout, full: full, dir: dir, binary: filepath.Join(dir, "switched.test"), numbers: make(map[string]int)}
	byFile := make(map[*file]map[int]change)
	for _, c := range changes {
		if c.where == (scope{}) {
			continue
		}
		if byFile[c.file] == nil {
			byFile[c.file] = make(map[int]change)
		}
		s.numbers[c.String()] = len(s.numbers) + 1
		byFile[c.file][len(s.numbers)] = c
	}
	replace := map[string]string{filepath.Join(p.dir, "changed_switch.go"): fmt.Sprintf(switchFile, p.files[0].tree.Name.Name)}
	for f, changes := range byFile {
		replace[f.path] = f.switched(changes)
	}
	if output, err := s.build(ctx, s.binary, replace); err != nil {
		return nil, fmt.Errorf("compiling %s with all changes: %w\n%s", p.dir, err, output)
	}
	if err := s.time(ctx); err != nil {
		return nil, err
	}
	return s, s.cover(ctx)
}

// build compiles the tests of the package with some files replaced.
func (s *suite) build(ctx context.Context, binary string, replace map[string]string, flags ...string) (output []byte, err error) {
	paths := make(map[string]string)
	for path, text := range replace {
		changed := filepath.Join(s.dir, filepath.Base(path))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		paths[path] = changed
	}
	raw, err := json.Marshal(map[string]map[string]string{"Replace": paths})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(s.dir, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return nil, err
	}
	args := slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-overlay", overlay, "-o", binary}, flags, []string{"./" + s.p.dir})
	return exec.CommandContext(ctx, "go", args...).CombinedOutput()
}

// try returns the result of a change that compiles.
func (s *suite) try(ctx context.Context, c change) (result string, err error) {
	binary, number := s.binary, s.numbers[c.String()]
	if number == 0 {
		binary = filepath.Join(s.dir, "one.test")
		output, err := s.build(ctx, binary, map[string]string{c.file.path: c.source(c.file.all())})
		if bytes.Contains(output, []byte("[build failed]")) || bytes.Contains(output, []byte(c.file.path+":")) {
			return invalid, nil // tests of the package read a constant
		}
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, output)
		}
	}
	var rounds [][]string
	for _, tests := range s.reaching(c) {
		rounds = append(rounds, []string{"-test.short", "-test.run", tests})
	}
	if s.full {
		rounds = append(rounds, nil)
	}
	for _, args := range rounds {
		output, err := s.test(ctx, binary, number, args...)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case bytes.Contains(output, []byte("panic: test timed out")), bytes.Contains(output, []byte("out of memory")):
			return endless, nil
		case errors.As(err, new(*exec.ExitError)):
			return found, nil
		case err != nil:
			return "", err
		}
	}
	return missed, nil
}

// test runs tests with one change. The change may make a test loop or take all memory:
// both have an end.
func (s *suite) test(ctx context.Context, binary string, number int, args ...string) (output []byte, err error) {
	command := exec.CommandContext(ctx, binary, append([]string{"-test.failfast", "-test.timeout=" + s.timeout.String()}, args...)...)
	command.Dir = s.p.dir
	command.Env = append(os.Environ(), "GOMEMLIMIT=1GiB", fmt.Sprintf("%s=%d", changedVariable, number))
	return command.CombinedOutput()
}
