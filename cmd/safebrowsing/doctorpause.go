package main

import (
	"fmt"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// pauses warns of the pauses that are in force, each once.
func (e *examination) pauses(now time.Time) {
	seen := make(map[string]bool)
	for _, b := range ours(e.blocks) {
		if b.Config.PauseFolder() == "" {
			continue
		}
		file := block.PauseFile(b.Config.PauseFolder())
		if seen[file] || files.RegularOrNone(file) != nil {
			continue
		}
		seen[file] = true
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		all, err := block.ParsePauses(raw)
		if err != nil {
			e.tell(diagnosis{"pause", isWarning, text(fmt.Sprintf("%s pauses nothing: %v", file, err)), "run safebrowsing pause off, which writes it again"})
		}
		for _, p := range all {
			if p.Active(now) {
				e.tell(pauseDiagnosis(p, file))
			}
		}
	}
}

func pauseDiagnosis(p block.Pause, file string) diagnosis {
	restart := ", or until CoreDNS is restarted"
	if p.Keep {
		restart = ""
	}
	return diagnosis{"pause", isWarning, text(fmt.Sprintf("%s block nothing until %s%s, by %s", p.Where(), say.Time(p.Until), restart, file)), "to end the pause run safebrowsing pause off"}
}
