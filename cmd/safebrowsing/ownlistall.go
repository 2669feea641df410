package main

import (
	"fmt"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// ownListed is the JSON of one entry.
type ownListed struct {
	File  text   `json:"file"`
	Line  int    `json:"line"`
	Entry text   `json:"entry"`
	Until string `json:"until"` // "": for ever
	Ended bool   `json:"ended"`
}

// list prints the entries of the file of -file, or of all files of the Corefile.
func (e *ownEdit) list() error {
	files := e.files(e.Allow)
	if e.file != "" || len(files) == 0 {
		file, err := e.pick(e.Allow)
		if err != nil {
			return err
		}
		files = []ownlist.Config{file}
	}
	for _, file := range files {
		content, err := os.ReadFile(file.Path)
		if err != nil {
			return err
		}
		entries, err := ownlist.Entries(content, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
		for _, x := range entries {
			e.listOne(file.Path, x)
		}
	}
	return e.end(false)
}

func (e *ownEdit) listOne(path string, x ownlist.Listed) {
	ended := !x.Until.IsZero() && !e.now.Before(x.Until)
	if e.json {
		e.object(ownListed{text(path), x.Line, text(x.Text), say.Stamp(x.Until), ended})
		return
	}
	note := ""
	switch {
	case ended:
		note = "   (ended)"
	case !x.Until.IsZero():
		note = fmt.Sprintf("   (ends in %v)", x.Until.Sub(e.now).Round(time.Second))
	}
	e.printf("%s:%d: %s%s\n", say.Shown(path), x.Line, say.Shown(x.Text), note)
}
