package main

import (
	"fmt"
	"io"
	"strings"
)

// row is a line of the table, its cells ready to print.
type row struct{ what, without, with, change, bar string }

func (b *bench) add(r row) { b.rows = append(b.rows, r) }

// note adds a line below the table.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

func (b *bench) print(w io.Writer) {
	printPeers(w, b.compared)
	b.printRows(w)
	for _, note := range b.notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
}

func (b *bench) printRows(w io.Writer) {
	if len(b.rows) == 0 {
		return
	}
	fmt.Fprintln(w, "| what | without | with the plugin | change | bar |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | --- |")
	for _, r := range b.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join([]string{r.what, r.without, r.with, r.change, r.bar}, " | "))
	}
	fmt.Fprintln(w)
}

// spread prints the median and, in brackets, the least and the greatest.
func (s sample) spread(format string) string {
	switch len(s) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf(format, s[0])
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", s.median(), s.min(), s.max())
}

// times prints ratios.
func (s sample) times() string { return "× " + s.spread("%.3f") }

// count prints a number with its thousands set apart.
func count(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
