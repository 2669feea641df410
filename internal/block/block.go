// Package block is one server block: what it decides about names, by its zones and exceptions,
// the operator's own lists, the names that the server needs, and then Safe Browsing; and
// what it tells of that.
//
//	InScope ──▶ Check ──▶ own lists ──▶ lookup.Checker ─┬─▶ Decision
//	                                                    └─▶ Suspect ──▶ Confirm
//	Explain, Ask: the same, in words
//	Process.Report: what the server blocks of a process protect by
//
// The plugin starts a Block, the command line reads one: both hold the same.
package block

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// log writes the lines about server blocks.
var log = say.NewLog(clog.NewWithPlugin(say.Plugin))

// Block is a server block. It is safe for concurrent use; Start, Read and End are called once.
type Block struct {
	Config   config.Config   // what the stanza says; does not change while the block is in use
	Settings engine.Settings // of its engine; without one of the folder only
	Stored   *engine.Stored  // that Read has read; nil: the block is started, or Safe Browsing is off

	own     atomic.Pointer[own]            // the operator's lists, set by Start and Read
	service atomic.Pointer[engine.Service] // set by Use; nil: Safe Browsing is off
	pauses  atomic.Pointer[pauseFolder]    // nil: there is no file of pauses
	needed  Needed                         // set by Need, before Start or Read
	memory  *memory                        // set by LookBack, before queries come; nil: nothing is remembered
	instead []answer.Designated            // set by Designate, before Start
	ends    []func()                       // what End does

	pageless  bool   // there is no status page at the address that the stanza names; guarded by Process.changing after Start
	closePage func() // guarded as pageless

	finding sync.Mutex // held while the line of an entry is looked for
	spared  say.Daily  // needed names that were not blocked
	shares  engine.ShareLog
}

// New returns the server block that a stanza describes. Without Start or Read it has no own
// lists, and Safe Browsing is off until Use.
func New(c config.Config) *Block {
	b := &Block{Config: c, Settings: engine.Settings(c.Engine)}
	if !c.Online {
		b.Settings = engine.Settings{DB: c.DB} // where a pause is written
	}
	return b
}

// Validate refuses a stanza that no engine can follow, and adds its doubts to the warnings of Config.
func (b *Block) Validate() error {
	return engine.Settings(b.Config.Engine).Check(b.Config.Secret, b.Config.Online, &b.Config)
}

// Start puts the own lists in force and keeps them fresh, looks for pauses, acquires the engine,
// and serves the status page. End ends all of that.
func (b *Block) Start() error {
	if err := b.open(true); err != nil {
		return err
	}
	b.ends = append(b.ends, b.watchPauses())
	if b.Config.Online {
		e, release, err := engine.Default.Acquire(b.Settings, b.Config.Secret)
		if err != nil {
			b.End()
			return err
		}
		b.ends = append(b.ends, release)
		b.Use(&e.Service)
	}
	b.ends = append(b.ends, b.LookBack())
	b.ends = append(b.ends, b.openStatus())
	process.add(b)
	return nil
}

// Read makes the block decide as a CoreDNS would that has saved what is in its folders now. It
// changes nothing there; only Ask sends requests. End ends it.
func (b *Block) Read() error { return b.read(engine.Read) }

// ReadToSearch is Read for a program that confirms many names, see engine.ReadToSearch.
func (b *Block) ReadToSearch(firstContact func() time.Duration) error {
	return b.read(func(s engine.Settings, secret string) (*engine.Stored, error) {
		return engine.ReadToSearch(s, secret, firstContact)
	})
}

// read is Read with what reads the folder of the service.
func (b *Block) read(service func(engine.Settings, string) (*engine.Stored, error)) error {
	if err := b.ReadOwn(); err != nil {
		return err
	}
	if folder := b.Config.PauseFolder(); folder != "" {
		b.pauses.Store(readPauses(folder))
	}
	if !b.Config.Online {
		return nil
	}
	stored, err := service(b.Settings, b.Config.Secret)
	if err != nil {
		b.End()
		return err
	}
	b.ends = append(b.ends, stored.Close)
	b.Stored = stored
	b.Use(&stored.Service)
	return nil
}

// ReadOwn is Read of the own lists only.
func (b *Block) ReadOwn() error { return b.open(false) }

// open opens the own lists. Without fetch those by URL are as a CoreDNS has fetched them last.
func (b *Block) open(fetch bool) error {
	report, inForce := b.reporter()
	lists, err := openOwn(&b.Config.Block, fetch, report)
	if err != nil {
		return err
	}
	b.own.Store(b.addServerLists(lists, report))
	b.ends = append(b.ends, func() { b.own.Load().close() })
	inForce()
	return nil
}

// reporter returns what reports about lists that are opened, and what is called when they are in force: only then it is
// known which needed names they block.
func (b *Block) reporter() (report func(ownlist.Event), inForce func()) {
	var mu sync.Mutex
	var early []string // lists that were read before they were in force; guarded by mu
	var opened bool    // guarded by mu
	report = func(e ownlist.Event) {
		reportOwn(e)
		if e.Err != nil {
			return
		}
		mu.Lock()
		now := opened
		if !now {
			early = append(early, e.Named)
		}
		mu.Unlock()
		if now {
			b.reportNeeded(e.Named)
		}
	}
	return report, func() {
		mu.Lock()
		opened = true
		mu.Unlock() // from now on early does not grow
		for _, list := range early {
			b.reportNeeded(list)
		}
	}
}

// Use makes the block decide by Safe Browsing too.
func (b *Block) Use(s *engine.Service) { b.service.Store(s) }

// End lets go of what Start or Read took. Own lists still decide, but are not read again.
func (b *Block) End() {
	process.remove(b)
	for _, end := range b.ends {
		end()
	}
}

// Ready reports whether the block has what its stanza names, and the lists of all engines are
// in force, or their first contact has ended.
func (b *Block) Ready() bool {
	return (!b.Config.Online || b.service.Load() != nil) && engine.Default.Ready()
}

// Reply returns how to answer, in the words of who provides what the server says.
func (b *Block) Reply() answer.Reply {
	if s := b.service.Load(); s != nil {
		return b.Config.Reply.By(s.Provider())
	}
	return b.Config.Reply
}

// PausedUntil returns when the pause of the block ends, and whether there is one. It takes no
// lock and does not allocate.
func (b *Block) PausedUntil() (time.Time, bool) { return b.pauses.Load().Until(b.Config.Zones) }

// InScope reports whether the block checks a name: it is in the zones and in none of the
// exceptions. The name has its final dot; case does not count.
func (b *Block) InScope(qname string) bool {
	c := &b.Config
	if len(c.Except) == 0 && len(c.Zones) == 1 && c.Zones[0] == "." { // the common case
		return true
	}
	return c.Zones.Contains(qname) && !c.Except.Contains(qname)
}

// Checked is what a block decides about a host by what is known here.
type Checked struct {
	lookup.Decision          // is not made while there is a Suspect
	Suspect         *Suspect // the server is to decide; nil: it is not
	// Needed is what the host is needed for; "": nothing, the operator's own lists decide, or
	// nothing would block the host. Neither Safe Browsing nor a list by URL blocks it, and the
	// targets in its answer are not checked.
	Needed string
}

// Check decides on a host. It logs, once a day, that a needed host passes which Safe Browsing
// would block.
func (b *Block) Check(h lookup.Host) (c Checked) {
	if b.check(h, &c); c.Needed != "" {
		c.Decision = b.spare(h, c.Decision, c.Needed)
	}
	return c
}

// check is Check before it spares. c is zero.
func (b *Block) check(h lookup.Host, c *Checked) {
	if b.checkOwn(h, &c.Decision) {
		return
	}
	s := b.service.Load()
	if s == nil {
		if b.Config.Inspect { // a list by URL may have a target in the answer
			c.Needed = b.needed.What(h)
		}
		return
	}
	var candidates *lookup.Candidates
	c.Decision, candidates = s.Checker.Check(h)
	if candidates != nil || c.Verdict == lookup.Unsafe || b.Config.Inspect { // few names
		c.Needed = b.needed.What(h)
	}
	if candidates != nil {
		c.Suspect = &Suspect{candidates: candidates, block: b, service: s, host: h, needed: c.Needed}
	}
}

// Suspect is a host that the server is to decide on.
type Suspect struct {
	candidates *lookup.Candidates
	block      *Block
	service    *engine.Service
	host       lookup.Host
	needed     string // what the host is needed for
}

// Shortest returns the prefix of the shortest expression that is asked about.
func (s *Suspect) Shortest() lookup.Prefix { return s.candidates.Shortest() }

// Limited returns the decision if the server may not be asked now.
func (s *Suspect) Limited() lookup.Decision { return s.decided(s.candidates.Limited()) }

// decided returns what becomes of a decision about the host.
func (s *Suspect) decided(d lookup.Decision) lookup.Decision {
	if s.needed == "" {
		return d
	}
	return s.block.spare(s.host, d, s.needed)
}

// Confirm asks the server, within the limit and the share of the client, see lookup.Checker.
// Clients without an address count as one. Before each search it calls room, and asks for
// nothing if that returns an error.
func (s *Suspect) Confirm(client netip.Addr, room func() error) *Confirmation {
	admit := lookup.AdmitBy(s.block.Config.Limiter, s.service.Shares, client)
	return s.confirm(func() (refund func(), err error) {
		if err := room(); err != nil || admit == nil {
			return nil, err
		}
		return admit()
	})
}

// confirm asks the server. admit may be nil.
func (s *Suspect) confirm(admit func() (refund func(), err error)) *Confirmation {
	return &Confirmation{s.service.Checker.Confirm(s.candidates, admit), s}
}

// Confirmation is a search under way about a Suspect.
type Confirmation struct {
	searching *lookup.Confirmation
	suspect   *Suspect
}

// Wait returns the decision, when the server has answered or ctx ends.
func (c *Confirmation) Wait(ctx context.Context) lookup.Decision {
	return c.suspect.decided(c.searching.Wait(ctx))
}

// isOwn reports whether the operator decided, and not Safe Browsing.
func isOwn(d lookup.Decision) bool {
	return d.By == lookup.ByAllow || d.By == lookup.ByBlock
}

// unlisted reports whether a name passes because no list of threats has it. Its decider is
// lookup.ByList, which would sound like a match to people.
func unlisted(d lookup.Decision) bool { return d.Verdict == lookup.Safe && d.By == lookup.ByList }

// checkOwn decides on a host by the operator's own lists, and reports whether they do. Of their
// entries the most specific one wins. A list by URL blocks no needed name: others write it, and
// this server may need the name to get the next version of the list. d is zero.
func (b *Block) checkOwn(h lookup.Host, d *lookup.Decision) bool {
	lists := b.own.Load()
	if lists == nil || len(lists.files) == 0 {
		return false
	}
	match, found := ownlist.Best(lists.files, h, time.Now())
	if found && match.Fetched && !match.Allow && b.needed.What(h) != "" {
		if match, found = ownlist.Best(lists.local, h, time.Now()); !found {
			d.By, d.List = lookup.ByAllow, neededList
			return true
		}
	}
	switch {
	case found && match.Allow:
		d.By, d.List = lookup.ByAllow, match.File
	case found:
		d.Verdict, d.By, d.List, d.Expression, d.Response = lookup.Unsafe, lookup.ByBlock, match.File, match.Name(h)+"/", match.Response
	default:
		return false
	}
	return true
}

// Claims are the folders and the servers that the engines of one Corefile use. The zero Claims has
// none.
type Claims struct {
	folders map[string]engine.Settings // who uses which folder
	askers  map[asker]engine.Settings  // who asks which server
}

// asker is whom a server takes an engine for, by any protocol.
type asker struct{ endpoint, secret string }

// Add refuses a block whose engine asks the same server with the same key as another block,
// because the server's rules hold for both together. It also refuses two engines in one folder.
func (c *Claims) Add(b *Block) error {
	if !b.Config.Online {
		return nil
	}
	if c.folders == nil {
		c.folders, c.askers = make(map[string]engine.Settings), make(map[asker]engine.Settings)
	}
	s := b.Settings
	for _, endpoint := range s.Endpoints() {
		who := asker{endpoint, b.Config.Secret}
		switch other, ok := c.askers[who]; {
		case ok && other.Endpoint != s.Endpoint:
			return fmt.Errorf("another server block asks %s with the same key and other endpoints: give both blocks the same endpoints in the same order", endpoint)
		case ok && other != s:
			return fmt.Errorf("another server block asks %s with the same key and different settings: %s and where the key is must be identical in both blocks", endpoint, strings.Join(engine.Words(), ", "))
		}
		c.askers[who] = s
	}
	if s.DB == "" {
		return nil
	}
	if other, ok := c.folders[s.DB]; ok && other != s {
		return fmt.Errorf("db %s is in use by another server block with another key or endpoint: give each its own db", s.DB)
	}
	c.folders[s.DB] = s
	return nil
}
