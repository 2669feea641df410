package cmdline

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

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

	found map[string]int // the diagnoses by their status
	err   error          // the first of writing; nothing is printed after it
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
		d.found = make(map[string]int)
	}
	d.found[x.Status]++
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

// Sum prints how much was found and returns ErrBadNews after a problem. In JSON, each line is
// a check.
func (d *Doctor) Sum() error {
	problems, warnings := d.found[Problem], d.found[Warning]
	if !d.JSON {
		d.printf("\n%s, %s\n", Count(problems, "problem", "problems"), Count(warnings, "warning", "warnings"))
	}
	switch {
	case d.err != nil:
		return fmt.Errorf("printing: %w", d.err)
	case problems > 0:
		return ErrBadNews
	}
	return nil
}
