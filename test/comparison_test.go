package test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The page that compares this plugin with others, and the one with what was measured.
const (
	comparison = "docs/comparison.md"
	benchPage  = "bench/README.md"
)

// tableOf returns the rows of the first table after a text, by cells, the heading first.
func tableOf(t *testing.T, document, after string) (rows [][]string) {
	t.Helper()
	_, text, _ := strings.Cut(documents(t)[document], after)
	for line := range strings.Lines(text) {
		cells, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		switch {
		case !ok && len(rows) > 0:
			return rows
		case !ok || strings.HasPrefix(cells, " ---"):
			continue
		}
		row := strings.Split(strings.TrimSuffix(cells, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	if len(rows) < 3 {
		t.Fatalf("Expected a table in %s after %q, got %v", document, after, rows)
	}
	return rows
}

// column returns the one that a heading of the comparison begins.
func column(t *testing.T, heading []string, name string) int {
	t.Helper()
	i := slices.IndexFunc(heading, func(h string) bool { return strings.HasPrefix(h, name) })
	if i < 0 {
		t.Fatalf("Expected a column %s in %q", name, heading)
	}
	return i
}

// A cell about others says where it is from, one about us where that is held; what has no source says
// nothing. Two rows are against us.
func TestTheComparisonHasASourceForEachCell(t *testing.T) {
	rows := tableOf(t, comparison, "\n")
	defined := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: https://\S+$`).FindAllStringSubmatch(documents(t)[comparison], -1) {
		defined[m[1]] = false
	}
	without := []string{"–", "not seen", "no DNS", "none"} // what DNS is, and what is not there
	figure := regexp.MustCompile(`^[0-9.]+( times| MiB)?$`)
	against := 0
	for _, row := range rows[1:] {
		if len(row) != len(rows[0]) {
			t.Errorf("%s: Expected %d cells, got %d", row[0], len(rows[0]), len(row))
			continue
		}
		if strings.HasPrefix(row[0], "**") && strings.HasPrefix(row[1], "**") {
			against++
		}
		for i, cell := range row[1:] {
			sources := regexp.MustCompile(`\]\[([a-z0-9-]+)\]`).FindAllStringSubmatch(cell, -1)
			for _, m := range sources {
				if _, ok := defined[m[1]]; !ok {
					t.Errorf("%s: Expected an address for %s", row[0], m[1])
				}
				defined[m[1]] = true
			}
			ours := strings.Contains(cell, "](")
			if i == 0 && !ours && !figure.MatchString(cell) || len(sources) == 0 && !ours && !figure.MatchString(cell) && !slices.Contains(without, cell) {
				t.Errorf("%s, %s: Expected a source for %q", row[0], rows[0][i+1], cell)
			}
		}
	}
	for name, used := range defined {
		if !used {
			t.Errorf("Expected a cell with the source %s", name)
		}
	}
	for _, row := range rows[len(rows)-2:] {
		if !strings.HasPrefix(row[0], "**") {
			t.Errorf("Expected the last rows to be those against us, got %s", row[0])
		}
	}
	if against != 2 {
		t.Errorf("Expected two rows against us, got %d", against)
	}
}

// The figures of the comparison are those that the command of the bench has printed.
func TestFiguresOfTheComparisonAreThoseOfTheBench(t *testing.T) {
	if !slices.ContainsFunc(shellLines(documents(t)[comparison]), func(line string) bool { return strings.HasPrefix(line, "go -C bench run . -only peers ") }) {
		t.Error("Expected the command that prints the figures")
	}
	bench := make(map[string][]float64) // by server: queries of a core and second, forwarded and cached, and MiB
	for _, row := range tableOf(t, benchPage, "`go -C bench run . -only peers`):\n")[1:] {
		for _, cell := range row[1:4] {
			number, _, _ := strings.Cut(strings.ReplaceAll(cell, ",", ""), " ")
			value, err := strconv.ParseFloat(number, 64)
			if err != nil {
				t.Fatalf("%s: %v", row[0], err)
			}
			bench[row[0]] = append(bench[row[0]], value)
		}
	}
	of := func(name string) []float64 {
		for server, values := range bench {
			if strings.HasPrefix(server, name) {
				return values
			}
		}
		t.Fatalf("Expected %s in the table of the bench", name)
		return nil
	}
	rows := tableOf(t, comparison, "\n")
	ours, tried := of("this plugin"), 0
	for _, row := range rows[1:] {
		kind := slices.Index([]string{"CPU time of a forwarded query", "CPU time of a cached query", "memory with a million names"}, row[0])
		if kind < 0 {
			continue
		}
		for _, name := range []string{"this plugin", "AdGuard Home", "blocky", "Unbound"} {
			tried++
			want := fmt.Sprintf("%.0f MiB", of(name)[kind%3])
			if kind < 2 {
				want = fmt.Sprintf("%.1f times", ours[kind]/of(name)[kind])
			}
			if want == "1.0 times" && name == "this plugin" {
				want = "1"
			}
			if got := row[column(t, rows[0], name)]; got != want {
				t.Errorf("%s, %s: Expected %s as in %s, got %s", row[0], name, want, benchPage, got)
			}
		}
	}
	if tried != 12 {
		t.Errorf("Expected twelve figures, got %d", tried)
	}
}

// What the comparison says of the check is what README and the page about it say, and what a hash gives.
func TestTheComparisonSaysWhatIsSent(t *testing.T) {
	rows := tableOf(t, comparison, "\n")
	i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "what leaves your network for the check" })
	if i < 0 || !strings.Contains(rows[i][1], "4 bytes of a hash, for one name in 250") {
		t.Fatalf("Expected what leaves the network, got %q", rows)
	}
	for _, name := range []string{"README.md", "docs/blocking.md"} {
		if !regexp.MustCompile(`one name\s+in 250`).MatchString(documents(t)[name]) {
			t.Errorf("Expected %s to have the same figure", name)
		}
	}
	// 7 million prefixes, and the expressions of a name of three labels.
	host, ok := lookup.ParseHost("www.example.org")
	if !ok {
		t.Fatal("Expected a host")
	}
	expressions := float64(len(host.Expressions()))
	if names := float64(uint64(1)<<32) / (expressions * 7e6); names < 200 || names > 320 {
		t.Errorf("Expected about one name in 250 to collide, got one in %.0f", names)
	}
}
