package safebrowsing

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// ownList is a list of the operator's own.
type ownList struct {
	file  string // as the Corefile names it
	names lookup.Names
}

// maxBadLines is how many bad lines of a file are logged one by one.
const maxBadLines = 5

// readOwnList reads a file with one host a line. Empty lines and what follows a
// '#' are left out. A line that is no host is logged and left out too: one slip
// must not cost the protection of all other lines.
func readOwnList(name, path string) (ownList, error) {
	f, err := os.Open(path)
	if err != nil {
		return ownList{}, err
	}
	defer f.Close()
	hosts, bad, err := parseOwnList(f)
	if err != nil {
		return ownList{}, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, line := range bad[:min(len(bad), maxBadLines)] {
		log.Warningf("%s:%d is no host and is left out: %.80q", path, line.number, line.text)
	}
	if len(bad) > maxBadLines {
		log.Warningf("%s: %d more lines are no hosts and are left out", path, len(bad)-maxBadLines)
	}
	return ownList{file: name, names: lookup.NewNames(hosts)}, nil
}

type badLine struct {
	number int
	text   string
}

func parseOwnList(r io.Reader) (hosts []lookup.Host, bad []badLine, err error) {
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "\uFEFF"), "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if h, ok := lookup.ParseHost(text); ok && !strings.ContainsAny(text, " \t") {
			hosts = append(hosts, h)
		} else {
			bad = append(bad, badLine{number, text})
		}
	}
	return hosts, bad, lines.Err()
}
