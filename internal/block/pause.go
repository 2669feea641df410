package block

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A pause lets every name pass for a while. The command line writes a file into the
// folder of the lists, and a running server looks at it twice a second.
//
//	safebrowsing pause 10m ──▶ FormatPauses ──▶ file ──stat every ½ s──▶ pauseFolder ──▶ query ──▶ pauseFolder.Until
//	                                                                       └─▶ one line each in the log
//
// Who may write to the folder can pause. A pause ends by itself. It does not survive a
// restart of the server unless it says so. A file that cannot be read pauses nothing.

// MaxPause is the longest pause.
const MaxPause = 7 * 24 * time.Hour

// AllBlocks is the Zone of a pause of all server blocks.
const AllBlocks = "all"

// Pause is one line of the file.
type Pause struct {
	Zone  string    `json:"zone"` // of the server blocks, fully qualified and in lower case; or AllBlocks
	From  time.Time `json:"-"`
	Until time.Time `json:"until"`
	Keep  bool      `json:"keep"` // also after a restart of the server
}

// Where says which server blocks are paused.
func (p Pause) Where() string {
	if p.Zone == AllBlocks {
		return "all server blocks"
	}
	return "the server blocks for " + p.Zone
}

// maxClockStep is how far the clock may be set back without ending a pause. A machine
// whose clock begins in the past, as on many routers, must not be paused by an
// old file until its clock is set.
const maxClockStep = time.Minute

// Active reports whether a pause is in force.
func (p Pause) Active(now time.Time) bool {
	return !now.Add(maxClockStep).Before(p.From) && now.Before(p.Until)
}

// pauseFileName is the name of the file in the folder of the lists.
const pauseFileName = "paused"

// pausedUntil returns when the longest pause of a server block with these zones ends, and whether
// there is one at now.
func pausedUntil(all []Pause, zones []string, now time.Time) (until time.Time, paused bool) {
	for _, p := range all {
		if (p.Zone == AllBlocks || slices.Contains(zones, p.Zone)) && p.Active(now) && p.Until.After(until) {
			until, paused = p.Until, true
		}
	}
	return until, paused
}

// PauseFile returns the path of the file in a folder.
func PauseFile(folder string) string { return filepath.Join(folder, pauseFileName) }

// maxPauseFile is the most bytes of a file.
const maxPauseFile = 64 << 10

const (
	onceWord = "once"
	keepWord = "keep"
	heading  = "# Names pass: zone, from, until. Written by: safebrowsing pause\n"
)

// FormatPauses returns the content of the file. ParsePauses is its reverse.
func FormatPauses(all []Pause) []byte {
	var b strings.Builder
	b.WriteString(heading)
	for _, p := range all {
		word := onceWord
		if p.Keep {
			word = keepWord
		}
		fmt.Fprintln(&b, p.Zone, p.From.UTC().Format(time.RFC3339Nano), p.Until.UTC().Format(time.RFC3339Nano), word)
	}
	return []byte(b.String())
}

// ParsePauses returns the pauses of a file, in its order. If one line is wrong, it returns none.
func ParsePauses(text []byte) (all []Pause, err error) {
	if len(text) > maxPauseFile {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPauseFile)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		p, err := parsePause(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("the line %.80q is not a pause: %w", strings.TrimSpace(line), err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePause(words []string) (p Pause, err error) {
	if len(words) != 4 || words[3] != onceWord && words[3] != keepWord {
		return p, fmt.Errorf("it must be a zone, two times, and %s or %s", onceWord, keepWord)
	}
	p = Pause{Zone: words[0], Keep: words[3] == keepWord}
	if p.From, err = time.Parse(time.RFC3339, words[1]); err != nil {
		return p, err
	}
	if p.Until, err = time.Parse(time.RFC3339, words[2]); err != nil {
		return p, err
	}
	p.From, p.Until = p.From.UTC(), p.Until.UTC() // pauses are compared with ==
	if p.Until.Sub(p.From) > MaxPause {
		return p, fmt.Errorf("it is longer than %v", MaxPause)
	}
	return p, nil
}
