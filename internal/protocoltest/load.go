package protocoltest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// listed is one line of the file that Load reads.
type listed struct {
	list       string
	expression string
	confirmed  bool // hashes.search knows it too
}

// Load fills a server from a text file with lines
//
//	LIST EXPRESSION [unconfirmed]
//
// such as "se-4b evil.example.com/"; a # begins a comment. An expression without
// slash gets one at its end. Its hash goes into the list, and hashes.search confirms
// it with the threat type that the list name implies, except when the line says
// unconfirmed (then a client asks and learns that all is well) or the list holds
// likely-safe hashes (gc-32b). Load again replaces what the last Load put in. After
// an error nothing has changed.
func Load(s *Server, r io.Reader) error {
	lines, err := readListed(r)
	if err != nil {
		return err
	}
	expressions := map[string][]string{} // as in Server.loaded
	entries := map[string][][]byte{}
	confirmed := map[string]listed{}
	for _, l := range lines {
		hash := sha256.Sum256([]byte(l.expression))
		entries[l.list] = append(entries[l.list], hash[:listWidth(l.list)])
		expressions[l.list] = append(expressions[l.list], l.expression)
		if l.confirmed {
			confirmed[l.list+" "+l.expression] = l
		}
	}
	var before map[string][]string
	s.locked(func() { before, s.loaded = s.loaded, expressions })
	for name, old := range before {
		for _, expression := range old {
			s.RemoveThreat(expression)
		}
		if entries[name] == nil {
			entries[name] = [][]byte{} // a retired list becomes empty
		}
	}
	for _, key := range slices.Sorted(maps.Keys(confirmed)) {
		confirmed[key].confirm(s)
	}
	for name, hashes := range entries {
		if slices.Equal(before[name], expressions[name]) {
			continue // no new version without a change
		}
		if err := s.publish(name, hashes); err != nil {
			return err
		}
	}
	return nil
}

// confirm has searches confirm an expression with the threat type of its list.
func (l listed) confirm(s *Server) {
	if l.list == extendedList {
		s.AddExtendedThreat(l.expression)
		return
	}
	s.AddThreat(l.expression, threatOf(l.list))
}

// readListed reads all lines of the file.
func readListed(r io.Reader) ([]listed, error) {
	var all []listed
	scanner := bufio.NewScanner(r)
	for n := 1; scanner.Scan(); n++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		l, err := parseListed(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, l)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the lists: %w", err)
	}
	return all, nil
}

func parseListed(fields []string) (listed, error) {
	if len(fields) < 2 || len(fields) > 3 {
		return listed{}, errors.New("LIST EXPRESSION [unconfirmed] expected, for example se-4b evil.example.com/")
	}
	if listWidth(fields[0]) == 0 {
		return listed{}, fmt.Errorf("list name ending in -4b, -8b, -16b or -32b expected, not %q", fields[0])
	}
	if len(fields) == 3 && fields[2] != "unconfirmed" {
		return listed{}, fmt.Errorf("unconfirmed or nothing expected after the expression, not %q", fields[2])
	}
	l := listed{list: fields[0], expression: fields[1], confirmed: len(fields) == 2 && !isLikelySafe(fields[0])}
	if !strings.Contains(l.expression, "/") {
		l.expression += "/"
	}
	return l, nil
}
