package block

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// What people change in a running server is in files, which a restart finds again: pauses, and entries
// of own lists. A server may often not write the operator's lists; it has two of its own beside the
// pauses, which all server blocks read.

// ownNames are the files of the lists of the server, by whether they allow.
var ownNames = map[bool]string{true: "allow.txt", false: "block.txt"}

// Files returns the distinct files of allow or of block that the stanza names, in its order. Lists by URL are
// not for editing: the next fetch would undo it.
func (b *Block) Files(allow bool) (all []ownlist.Config) {
	for _, f := range b.Config.Own {
		if f.Path != "" && f.Allow == allow && !slices.ContainsFunc(all, func(c ownlist.Config) bool { return c.Path == f.Path }) {
			all = append(all, listOf(&b.Config.Block, f))
		}
	}
	return all
}

// Reads reports whether a file is one of allow or of block.
func (b *Block) Reads(path string, allow bool) bool {
	return slices.ContainsFunc(b.Files(allow), func(c ownlist.Config) bool { return config.SameFile(c.Path, path) })
}

// ServerLists returns how the server reads its own two lists, in the folder of the block, without those that the
// Corefile names; the files may not exist.
func (b *Block) ServerLists() (all []ownlist.Config) {
	folder := b.Config.PauseFolder()
	for _, allow := range []bool{true, false} {
		path := filepath.Join(folder, ownNames[allow])
		if folder != "" && !b.Reads(path, allow) {
			all = append(all, ownlist.Config{Path: path, Allow: allow, IPv4: b.Config.IPv4, IPv6: b.Config.IPv6})
		}
	}
	return all
}

// LeavesBehind says what is in the folder of a block that ends by a reload, and in force no more: no other block has
// that folder. "": nothing is.
func (b *Block) LeavesBehind() string {
	folder := b.Config.PauseFolder()
	others := slices.DeleteFunc(process.all(), func(other *Block) bool { return other == b })
	if slices.ContainsFunc(others, func(other *Block) bool { return config.SameFile(other.Config.PauseFolder(), folder) }) {
		return ""
	}
	var left []string
	for _, f := range b.own.Load().files {
		s := f.State()
		ours := slices.ContainsFunc(b.ServerLists(), func(c ownlist.Config) bool { return c.Path == s.Path && c.Allow == s.Allow })
		read := func(other *Block) bool { // also if people have copied it before
			return other.Reads(s.Path, s.Allow) || files.Check(filepath.Join(other.Config.PauseFolder(), ownNames[s.Allow])) == nil
		}
		if ours && s.Entries > 0 && !slices.ContainsFunc(others, read) {
			left = append(left, s.Path)
		}
	}
	if _, paused := b.PausedUntil(); paused {
		left = append(left, PauseFile(folder))
	}
	if left == nil {
		return ""
	}
	return fmt.Sprintf("Not in force since this reload: %s. No server block has that db any more. To keep it in force, move it to the db of one", strings.Join(left, ", "))
}

// addServerLists opens lists of the server that exist and are not open yet.
func (b *Block) addServerLists(lists *own, report func(ownlist.Event)) *own {
	grown := *lists
	for _, c := range b.ServerLists() {
		id := which{c.Path, c.Allow}
		if _, open := lists.configs[id]; open || files.Check(c.Path) != nil {
			continue
		}
		f, err := ownlist.Open(c, report)
		if err != nil {
			if !process.unusable.First(c.Path+" "+err.Error(), time.Now()) {
				continue
			}
			log.Warningf("The list %s, which \"safebrowsing %s\" has written, cannot be used: %v", c.Path, strings.TrimSuffix(ownNames[c.Allow], ".txt"), reasonOf(err))
			continue
		}
		grown.files, grown.local = append(slices.Clip(grown.files), f), append(slices.Clip(grown.local), f)
		grown.configs = maps.Clone(grown.configs)
		grown.configs[id] = c
	}
	return &grown
}

// lookForServerLists opens lists of the server that have come into being, by this process or by
// another one with the folder.
func (p *Process) lookForServerLists() {
	p.changing.Lock()
	defer p.changing.Unlock()
	for _, b := range p.all() {
		if lists := b.own.Load(); lists != nil {
			report, inForce := b.reporter()
			if grown := b.addServerLists(lists, report); len(grown.files) > len(lists.files) {
				b.own.Store(grown)
				inForce()
			}
		}
	}
}

// settles is how long a change may take until queries see it: files are looked at twice a second.
const settles = 3 * time.Second

// wait waits until a change is in force, for settles at most.
func wait(ctx context.Context, inForce func() bool) {
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	for !inForce() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Pause lets every name pass for a while in the server blocks that check a zone, or in all if it is
// AllBlocks; a length of 0 ends pauses. It returns those that are in force then.
func (p *Process) Pause(ctx context.Context, zone string, length time.Duration, keep bool) (all []Pause, err error) {
	now := time.Now()
	if length < 0 || length > MaxPause {
		return nil, fmt.Errorf("a pause lasts %v at most", MaxPause)
	}
	blocks := p.all()
	if zone = strings.ToLower(zone); zone != AllBlocks {
		zone = strings.TrimSuffix(zone, ".") + "."
		blocks = slices.DeleteFunc(blocks, func(b *Block) bool { return !slices.Contains(b.Config.Zones, zone) })
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("no server block checks the zone %q", zone)
	}
	if slices.ContainsFunc(blocks, func(b *Block) bool { return b.Config.PauseFolder() == "" }) {
		return nil, errors.New("there is no folder for the pause: add db DIRECTORY to the Corefile")
	}
	var done []string
	for _, b := range blocks {
		folder := b.Config.PauseFolder()
		if slices.Contains(done, folder) {
			continue
		}
		changed, err := ChangePauses(ctx, folder, zone, length, keep, now)
		if err != nil && len(done) > 0 {
			is := map[bool]string{true: "is in force", false: "has ended"}[length > 0]
			err = fmt.Errorf("the pause %s with db %s, but not with each: %w", is, strings.Join(done, ", "), err)
		}
		if err != nil {
			return nil, err
		}
		done = append(done, folder)
		for _, x := range changed {
			if b.pauses.Load().counts(x) && !slices.Contains(all, x) { // another folder may have the same one
				all = append(all, x)
			}
		}
	}
	wait(ctx, func() bool {
		return !slices.ContainsFunc(blocks, func(b *Block) bool {
			_, paused := b.PausedUntil()
			_, should := pausedUntil(all, b.Config.Zones, time.Now())
			return paused != should
		})
	})
	return all, nil
}

// ChangePauses writes a pause into the file of a folder, instead of one of the zone; a length of 0
// ends the zone's pauses, or all for AllBlocks. It returns the pauses in force.
func ChangePauses(ctx context.Context, folder, zone string, length time.Duration, keep bool, now time.Time) (all []Pause, err error) {
	err = files.EditTarget(ctx, PauseFile(folder), func(old []byte) ([]byte, error) {
		all, _ = ParsePauses(old) // a damaged file is written again
		all = slices.DeleteFunc(all, func(x Pause) bool { return !x.Active(now) || x.Zone == zone || zone == AllBlocks })
		if length > 0 {
			all = append(all, Pause{Zone: zone, From: now.UTC(), Until: now.Add(length).UTC(), Keep: keep})
		}
		if len(all)+len(old) == 0 {
			return nil, nil
		}
		return FormatPauses(all), nil
	})
	return all, err
}

// Change is an entry of an own list that is wanted, or not any more.
type Change struct {
	Host   lookup.Host
	Allow  bool // else block
	Remove bool
	Until  time.Time // of an entry that allows; zero: for ever
}

// Changed is what has become of a Change.
type Changed struct {
	Host    string    `json:"host"`
	Action  string    `json:"action"` // allow, block or remove
	File    string    `json:"file"`   // several are joined by a comma and a space
	Line    int       `json:"line"`   // 0 after remove
	Entry   string    `json:"entry"`
	Until   time.Time `json:"until,omitzero"` // zero: for ever
	Changed bool      `json:"changed"`
	Removed []string  `json:"removed"` // lines that were about the host
	Ended   []string  `json:"ended"`   // lines that were removed, as their entries had ended
	But     string    `json:"but"`     // why queries are not answered as wanted; "": they are
}

// Edit returns the text of a list with the change.
func (c Change) Edit(text []byte, list ownlist.Config, now time.Time) (ownlist.Edited, error) {
	if c.Remove {
		return ownlist.Remove(text, list, c.Host, now)
	}
	return ownlist.Add(text, list, c.Host, c.Until, now)
}

// Of returns what an edit of a list has made of the change.
func (c Change) Of(list ownlist.Config, e ownlist.Edited) Changed {
	done := Changed{Host: c.Host.String(), Action: c.word(), File: list.Path, Line: e.Line, Entry: e.Entry, Changed: e.Changed,
		Removed: append([]string{}, e.Removed...), Ended: append([]string{}, e.Ended...)}
	if strings.Contains(e.Entry, "# until ") {
		done.Until = c.Until
	}
	return done
}

// Change changes the lists for a host and all names below it, and waits until that is in force.
func (p *Process) Change(ctx context.Context, c Change) (done Changed, err error) {
	blocks := p.all()
	if len(blocks) == 0 {
		return done, errors.New("no server block has safebrowsing")
	}
	if c.Remove {
		done, err = removeFrom(ctx, candidatesOf(blocks, c), c)
	} else {
		done, err = addTo(ctx, blocks, c)
	}
	if err != nil {
		return done, err
	}
	p.lookForServerLists()
	wait(ctx, func() bool {
		done.But = ""
		for _, b := range blocks {
			if why := b.Otherwise(c); why != "" {
				done.But = why
			}
		}
		return done.But == ""
	})
	if !c.Remove && !c.Allow && done.But == "" {
		done.But = passes(blocks, c.Host)
	}
	return done, nil
}

// passes says why no server block blocks a host that a list blocks; "": one does.
func passes(blocks []*Block, h lookup.Host) (why string) {
	qname := h.String() + "."
	for _, b := range blocks {
		a := b.answerOf(h, b.Explain(h, qname))
		if a.Blocked() {
			return ""
		}
		if why == "" || b.InScope(qname) {
			why = fmt.Sprintf("%s passes: %s", h, a.Note)
		}
	}
	return why
}

// candidatesOf returns the files that may be edited, the preferred one first: those that all blocks read, to
// remove an entry all files; of the Corefile, and at last the server's own.
func candidatesOf(blocks []*Block, c Change) (all []ownlist.Config) {
	times := len(blocks)
	if c.Remove {
		times = 1
	}
	seen := make(map[string]int)
	for _, listsOf := range []func(*Block) []ownlist.Config{func(b *Block) []ownlist.Config { return b.Files(c.Allow) }, (*Block).ServerLists} {
		for _, b := range blocks {
			for _, f := range listsOf(b) {
				if f.Allow != c.Allow {
					continue
				}
				if seen[f.Path]++; seen[f.Path] == times {
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// also adds what has become of the change in another file.
func (done *Changed) also(other Changed) {
	if done.File != "" {
		other.File = done.File + ", " + other.File
	}
	other.Removed, other.Ended = append(done.Removed, other.Removed...), append(done.Ended, other.Ended...)
	*done = other
}

// errNoFile says that no file may be edited.
var errNoFile = errors.New("there is no file for the entry: add db DIRECTORY to the Corefile")

// forbidden reports whether an error says that this process may not write, or that the file is a mount (EBUSY).
func forbidden(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EBUSY)
}

// addTo adds an entry to a file that all blocks read, or if none may be written to one of each block: they may
// have folders of their own.
func addTo(ctx context.Context, blocks []*Block, c Change) (done Changed, err error) {
	done, err = addToFirst(ctx, candidatesOf(blocks, c), c)
	if err != errNoFile && !forbidden(err) {
		return done, err
	}
	for _, b := range blocks {
		one, err := addToFirst(ctx, candidatesOf([]*Block{b}, c), c)
		if err != nil && done.File != "" {
			err = fmt.Errorf("%s has the entry, but not each server block has one: %w", done.File, err)
		}
		if err != nil {
			return done, err
		}
		if one.Changed || done.File == "" {
			done.also(one)
		}
	}
	return done, nil
}

// addToFirst adds an entry to the first file that may be written.
func addToFirst(ctx context.Context, candidates []ownlist.Config, c Change) (done Changed, err error) {
	err = errNoFile
	for _, f := range candidates {
		var edited ownlist.Edited
		if err = editList(ctx, f.Path, func(text []byte) ([]byte, error) {
			edited, err = c.Edit(text, f, time.Now())
			return edited.Text, err
		}); err == nil {
			return c.Of(f, edited), nil
		}
		if !forbidden(err) {
			break
		}
	}
	return c.Of(ownlist.Config{}, ownlist.Edited{}), err
}

// removeFrom removes the entries of a host from all files. A file that cannot be looked at, or has an entry beside others
// of its line, is an error if no other one has an entry; else Otherwise tells of it.
func removeFrom(ctx context.Context, candidates []ownlist.Config, c Change) (done Changed, unread error) {
	done = c.Of(ownlist.Config{}, ownlist.Edited{})
	for _, f := range candidates {
		if _, missing := os.Stat(f.Path); missing != nil {
			continue
		}
		var edited ownlist.Edited
		var refused error // there is nothing to remove, or not by a program
		err := editList(ctx, f.Path, func(text []byte) ([]byte, error) {
			edited, refused = c.Edit(text, f, time.Now())
			return edited.Text, refused
		})
		switch {
		case err == nil:
			done.also(c.Of(f, edited))
		case edited.Changed:
			return done, byHand(err, f.Path, c)
		case refused == nil && !forbidden(err), errors.Is(refused, ownlist.ErrOthers): // else there is nothing to write
			unread = cmp.Or(unread, err)
		}
	}
	if done.Changed {
		return done, nil
	}
	return done, unread
}

// byHand adds to an error who can remove an entry that this process may not: in a package root has the lists.
func byHand(err error, path string, c Change) error {
	if !forbidden(err) {
		return err
	}
	word := map[bool]string{true: "allow", false: "block"}[c.Allow]
	return fmt.Errorf("%w; whoever may write that file runs safebrowsing %s -remove -file %s %s", err, word, path, c.Host)
}

// editList edits a list, which is then read at once.
func editList(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	if err := files.Edit(ctx, path, change); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if full, err := filepath.Abs(path); err == nil {
		ownlist.Changed(full)
	}
	return nil
}

func (c Change) word() string {
	switch {
	case c.Remove:
		return "remove"
	case c.Allow:
		return "allow"
	}
	return "block"
}

// Otherwise says why the block does not do what a change asks for; "" if it does, or does not check
// the name.
func (b *Block) Otherwise(c Change) string {
	h := c.Host
	if !b.InScope(h.String() + ".") {
		return ""
	}
	var d Checked
	b.check(h, &d)
	own := isOwn(d.Decision)
	switch {
	case c.Allow && !c.Remove && own && d.Verdict == lookup.Unsafe:
		return fmt.Sprintf("%s is still blocked, by a more specific entry of %s", h, d.List)
	case c.Allow && !c.Remove && !own:
		return "the entry is not in force yet"
	case !c.Allow && !c.Remove && d.By == lookup.ByAllow:
		return fmt.Sprintf("%s still passes: it is allowed by %s", h, d.List)
	case !c.Allow && !c.Remove && d.Verdict != lookup.Unsafe:
		return "the entry is not in force yet"
	case c.Remove && !c.Allow && d.Verdict == lookup.Unsafe:
		return fmt.Sprintf("%s is still blocked, by %s", h, filepath.Base(d.List))
	case c.Remove && c.Allow && d.By == lookup.ByAllow:
		return fmt.Sprintf("%s still passes: it is allowed by %s", h, filepath.Base(d.List))
	}
	return ""
}

// What people write of a Change, who may sit at a terminal or at the door.

// EntryHost returns the host that people name for an entry. It refuses hosts that would make an entry
// about very many names.
func EntryHost(text string) (lookup.Host, error) {
	h, ok := lookup.ParseHost(text)
	if _, err := netip.ParseAddr(strings.Trim(h.String(), "[]")); ok && err == nil {
		return h, fmt.Errorf("%q is an address: write the name that is asked for", text)
	}
	if !ok || strings.ContainsAny(text, "/*:@") || strings.Contains(text, "..") || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "-") {
		return h, fmt.Errorf("%q is not a host: write a name such as www.example.org", text)
	}
	if ownlist.IsPublicSuffix(h.String()) {
		return h, fmt.Errorf("%s is a public suffix: an entry would be about every name below it; if you want that, write it into the file by hand", h)
	}
	return h, nil
}

// maxFor is the longest duration of an exception. A longer one is better written as a date.
const maxFor = 366 * 24 * time.Hour

// EndOf returns when an exception ends by -for and -until; the zero time if both are "".
func EndOf(length, until string, now time.Time) (time.Time, error) {
	switch {
	case length != "" && until != "":
		return time.Time{}, errors.New("-for and -until are both given: keep one of the two")
	case length != "":
		d, err := say.Duration(length, maxFor)
		return now.Add(d).Round(time.Second), err
	case until != "":
		return timeOf(until, now)
	}
	return time.Time{}, nil
}

// timeOf reads a time in the time zone of now: 18:00 is the next one, and the other forms
// are as in an own list, with a space instead of the T if the user prefers.
func timeOf(written string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if clock, err := time.Parse(layout, written); err == nil {
			return nextOf(clock, now), nil
		}
	}
	end, err := ownlist.ParseUntil(strings.Replace(strings.TrimSpace(written), " ", "T", 1), now.Location())
	if err != nil {
		return end, fmt.Errorf("-until: %q is not a time such as 18:00, 2026-11-22 or \"2026-11-22 18:00\"", written)
	}
	if !end.After(now) {
		return end, fmt.Errorf("-until: %s is in the past", written)
	}
	return end.In(now.Location()), nil
}

// nextOf returns the first time after now when clocks in its time zone show clock, or skip it.
func nextOf(clock, now time.Time) time.Time {
	for at := now.Add(1); ; { // time.Date may take the second of two
		name, offset := at.Zone()
		next := time.Date(at.Year(), at.Month(), at.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, time.FixedZone(name, offset))
		if next.Before(at) {
			next = next.AddDate(0, 0, 1)
		}
		_, change := at.ZoneBounds()
		if change.IsZero() || next.Before(change) {
			return next.In(now.Location())
		}
		if _, then := change.Zone(); next.Before(change.Add(time.Duration(then-offset) * time.Second)) {
			return change
		}
		at = change
	}
}
