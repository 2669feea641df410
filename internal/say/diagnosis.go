package say

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit statuses other than 0.
const (
	BadNews = 1 // a name is not safe, or the command found a problem
	Misuse  = 2 // the command could not do its work
)

// ErrBadNews ends a command that has printed all its findings: Exit prints nothing more. Another error
// that is ErrBadNews is printed.
var ErrBadNews = errors.New("bad news")

// Exit prints the error of a program, nil for none, and returns the exit status: 0, BadNews or
// Misuse.
func Exit(errOut io.Writer, program string, err error) int {
	switch {
	case err == nil:
		return 0
	case err == ErrBadNews:
		return BadNews
	}
	fmt.Fprintf(errOut, "%s: %s\n", program, Shown(err.Error()))
	if errors.Is(err, ErrBadNews) {
		return BadNews
	}
	return Misuse
}

// UsageError adds to an error about the flags of a command where the help is.
func UsageError(command string, err error) error {
	text := err.Error()
	return fmt.Errorf("%s, see %s -h", strings.ToLower(text[:1])+text[1:], command)
}

// The values of Diagnosis.Status.
const (
	OK      = "ok"
	Warning = "warning" // it works, but perhaps not as the operator expects
	Problem = "problem"
	Skipped = "skipped"
)

// Diagnosis is the result of one check of a doctor.
type Diagnosis struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Text   Text   `json:"text"`   // the finding
	Advice Text   `json:"advice"` // what the operator can do; "": nothing
}

// Doctor prints diagnoses, without the secrets that are known. What looks like another one is
// masked where it is printed.
type Doctor struct {
	W       io.Writer
	JSON    bool     // each diagnosis is a line of JSON
	Secrets []string // are replaced

	found map[string]int    // the diagnoses by their status
	first map[string]string // the first check by its status
	err   error             // the first of writing; nothing is printed after it
}

// Tell prints a diagnosis.
func (d *Doctor) Tell(x Diagnosis) {
	for _, t := range []*Text{&x.Text, &x.Advice} {
		for _, secret := range d.Secrets {
			if secret != "" {
				*t = Text(strings.ReplaceAll(string(*t), secret, "(the key)"))
			}
		}
	}
	if d.found == nil {
		d.found, d.first = make(map[string]int), make(map[string]string)
	}
	if d.found[x.Status]++; d.first[x.Status] == "" {
		d.first[x.Status] = x.Check
	}
	if d.JSON {
		if d.err == nil {
			e := json.NewEncoder(d.W)
			e.SetEscapeHTML(false)
			d.err = e.Encode(x)
		}
		return
	}
	d.printf("%-8s %-9s %s\n", x.Status, x.Check, Shown(string(x.Text)))
	if x.Advice != "" {
		d.printf("%18s → %s\n", "", Shown(string(x.Advice)))
	}
}

func (d *Doctor) printf(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.W, format, args...)
	}
}

// Sum prints how much was found and, of several findings, which one to mend first: the first
// problem, since others often follow from it. It returns ErrBadNews after a problem. In JSON, each
// line is a check.
func (d *Doctor) Sum() error {
	problems, warnings := d.found[Problem], d.found[Warning]
	if !d.JSON {
		start := ""
		if problems+warnings > 1 {
			start = ". Start with: " + cmp.Or(d.first[Problem], d.first[Warning])
		}
		d.printf("\n%s, %s%s\n", Count(problems, "problem", "problems"), Count(warnings, "warning", "warnings"), start)
	}
	switch {
	case d.err != nil:
		return fmt.Errorf("printing: %w", d.err)
	case problems > 0:
		return ErrBadNews
	}
	return nil
}
