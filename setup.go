package safebrowsing

import (
	"bytes"
	"fmt"
	"io"
	golog "log"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func init() { plugin.Register(say.Plugin, setup) }

// setup reads the Corefile. It starts nothing: if the Corefile is refused later,
// nothing has to be undone.
func setup(c *caddy.Controller) error {
	maskLog()
	if err := checkPosition(dnsserver.Directives); err != nil {
		return plugin.Error(say.Plugin, err)
	}
	cfg, err := config.Parse(c, dnsserver.GetConfig(c).Root)
	if err != nil {
		return plugin.Error(say.Plugin, err)
	}
	s := newPlugin(cfg, nil)
	if err := s.block.Validate(); err != nil {
		return plugin.Error(say.Plugin, err)
	}
	if err := instanceOf(c).claims.Add(s.block); err != nil {
		return plugin.Error(say.Plugin, c.Err(err.Error()))
	}
	if cfg.Explain { // else the server refuses queries of class CH
		dnsserver.EnableChaos[say.Plugin] = struct{}{}
	}
	live(c, s)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		s.Next = next
		return s
	})
	return nil
}

// maskLog masks the log of the process: package net/http writes into it what a server sends unasked.
func maskLog() {
	w := golog.Writer()
	if _, masked := w.(say.MaskedWriter); !masked && w != io.Discard {
		if clog.IsJSON() { // coredns -log-format json makes each line of package log a text in an object
			say.JSONTo = os.Stdout
		}
		golog.SetOutput(say.MaskedWriter{W: w})
	}
}

// live ties a server block to the start and the stop of its instance of CoreDNS.
func live(c *caddy.Controller, s *SafeBrowsing) {
	of := instanceOf(c)
	of.blocks = append(of.blocks, s.block)
	c.OnStartup(func() error {
		cfg, server := &s.block.Config, dnsserver.GetConfig(c)
		s.place = place{c.ServerBlockKeys, server.ListenHosts, server.ViewName}
		file, blocks := corefileOf(of.generation)
		loop := cfg.LoopWarning(blocks, config.SystemResolvers(config.ResolvConf), config.MachineAddresses())
		encrypted := config.EncryptedOf(blocks)
		if server.ViewName == "" { // clients of a view would leave its rules
			s.block.Designate(config.Designated(encrypted))
		}
		of.sayOnce(func(text string) { log.Warning(text) }, cfg.Warnings, config.HiddenViews(file, blocks), cfg.Undesignated(encrypted), []string{loop})
		of.sayOnce(func(text string) { log.Info(text) }, cfg.Notes)
		s.block.Need(block.NeededBy(of.blocks, config.ForwardTargets(blocks))) // all blocks have been read by now
		if err := serving.start(s, of.generation); err != nil {
			return plugin.Error(say.Plugin, err)
		}
		of.sayOnce(func(text string) { log.Info(text) }, []string{s.block.Keeps()}) // its lists of allow are open now
		return nil
	})
	release := func() error {
		serving.end(s)
		s.names.end(time.Now())
		return nil
	}
	// At the end of the process CoreDNS still serves queries after OnShutdown, for as
	// long as health's lameduck lasts. So the engine stays until OnFinalShutdown. In a
	// reload the servers have stopped before OnShutdown, but for connections over QUIC.
	var restarting atomic.Bool
	c.OnRestart(func() error {
		restarting.Store(true)
		return nil
	})
	c.OnShutdown(func() error {
		if restarting.Load() {
			return release()
		}
		return nil
	})
	c.OnFinalShutdown(release)
	c.OnRestartFailed(func() error {
		restarting.Store(false)
		serving.endDead(0)
		return nil
	})
}

// mustFollow are plugins that answer queries themselves. This plugin must come
// before them in the order: it never sees a query that one of them has answered.
var mustFollow = []string{"cache", "template", "hosts", "file", "auto", "secondary", "forward", "grpc", "erratic", "whoami"}

// checkPosition refuses a CoreDNS that was compiled with this plugin in a place
// where it would load and block nothing.
func checkPosition(directives []string) error {
	ours := slices.Index(directives, say.Plugin)
	for i, d := range directives[:max(0, ours)] {
		if slices.Contains(mustFollow, d) {
			return fmt.Errorf("compiled in after plugin %s, number %d in the order, where it would block nothing: "+
				"in plugin.cfg move the line %q to directly before \"cache:cache\", then run go generate and build again", d, i+1, say.Plugin+":…")
		}
	}
	return nil
}

// instanceKey is where this plugin keeps its own in the storage of a CoreDNS
// instance. Each reading of the Corefile makes an instance.
type instanceKey struct{}

// instance is what is known of one reading of the Corefile.
type instance struct {
	generation uint64
	blocks     []*block.Block // that have been read so far
	claims     block.Claims
	said       map[string]bool // texts in the log: server blocks that import the same lines log them once
}

var generations atomic.Uint64

func instanceOf(c *caddy.Controller) *instance {
	if i, ok := c.Get(instanceKey{}).(*instance); ok {
		return i
	}
	i := &instance{generation: generations.Add(1), said: make(map[string]bool)}
	c.Set(instanceKey{}, i)
	return i
}

// sayOnce logs texts that are not in the log yet. "" is no text. It is not safe for concurrent use:
// functions of OnStartup run one after the other.
func (i *instance) sayOnce(log func(string), all ...[]string) {
	for _, text := range slices.Concat(all...) {
		if text != "" && !i.said[text] {
			log(text)
		}
		i.said[text] = true
	}
}

// end waits for what outlives its queries, and lets go of what the server block took.
func (s *SafeBrowsing) end() {
	s.detached.end()
	s.closeDoor()
	s.block.End()
}

// doors are the control sockets of the process, over which it is asked what it protects.
var doors control.Doors

// openDoor opens the door of the process in the folder of the server block. Without one names are
// checked as always.
func (s *SafeBrowsing) openDoor() {
	s.closeDoor = func() {}
	folder := s.block.Folder()
	if folder == "" {
		return
	}
	path, release, err := doors.Open(folder, block.ThisProcess())
	if err != nil {
		log.Warningf("There is no control socket in %s: %v. Names are checked as always, but \"safebrowsing status\" cannot ask this server", folder, err)
		return
	}
	if s.closeDoor = release; path != "" {
		log.Infof("The control socket is %s", path)
	}
}

// started are the server blocks that have started and not ended, each with the
// generation of the Corefile that it was read from. It is safe for concurrent use.
type started struct {
	mu          sync.Mutex // not held while a block starts or ends
	generations map[*SafeBrowsing]uint64
}

var serving = started{generations: make(map[*SafeBrowsing]uint64)}

// start starts a server block, after those have ended that do not serve any more.
func (b *started) start(s *SafeBrowsing, generation uint64) error {
	b.endDead(generation)
	if err := s.block.Start(); err != nil {
		return err
	}
	s.openDoor()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generations[s] = generation
	return nil
}

// end ends a server block, once. If another one has taken its place in a reload, queries that still come are for that.
func (b *started) end(s *SafeBrowsing) {
	b.mu.Lock()
	generation, ok := b.generations[s]
	delete(b.generations, s)
	var later []*SafeBrowsing
	for other, g := range b.generations {
		if ok && g > generation {
			later = append(later, other)
		}
	}
	b.mu.Unlock()
	if len(later) > 0 { // a reload
		s.successor.Store(s.place.successor(later))
		if left := s.block.LeavesBehind(); left != "" {
			log.Warning(left)
		}
	}
	if ok {
		s.end()
	}
}

// place is where a server block answers.
type place struct {
	keys, addresses []string
	view            string
}

// successor returns the server block in a place, else the only one of that view that answers at one of its keys over
// QUIC or HTTP/3: with bind, addresses may change, and other keys come and go. nil: there is none.
func (p place) successor(later []*SafeBrowsing) *SafeBrowsing {
	var near []*SafeBrowsing
	for _, s := range later {
		switch at := s.place; {
		case at.view != p.view:
		case slices.Equal(at.keys, p.keys) && slices.Equal(at.addresses, p.addresses):
			return s
		case slices.ContainsFunc(at.keys, func(key string) bool {
			return slices.Contains(p.keys, key) && (strings.HasPrefix(key, transport.QUIC+":") || strings.HasPrefix(key, transport.HTTPS3+":"))
		}):
			near = append(near, s)
		}
	}
	if len(near) != 1 { // of several nobody knows which one
		return nil
	}
	return near[0]
}

// endDead ends the server blocks of instances that do not serve, except for a
// generation that is being started; 0 is none. CoreDNS does not shut down a new
// instance whose listeners could not be bound: it only tells the old one that the
// restart has failed. It does so too when the new instance serves and the old one
// could not be shut down in order.
func (b *started) endDead(spared uint64) {
	live := liveInstances()
	b.mu.Lock()
	var dead []*SafeBrowsing
	for s, generation := range b.generations {
		if generation != spared && live[generation] == nil {
			dead = append(dead, s)
		}
	}
	b.mu.Unlock()
	for _, s := range dead {
		b.end(s)
	}
}

// liveInstances has the instances that serve, or are being started, by generation.
func liveInstances() map[uint64]*caddy.Instance {
	live := make(map[uint64]*caddy.Instance)
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		if ours, ok := i.Storage[instanceKey{}].(*instance); ok {
			live[ours.generation] = i
		}
		i.StorageMu.RUnlock()
	}
	return live
}

// corefileOf returns the Corefile of a generation and its server blocks, or nil if there is none.
// In setup a plugin sees its own stanza only.
func corefileOf(generation uint64) (file string, blocks []caddyfile.ServerBlock) {
	i := liveInstances()[generation]
	if i == nil || i.Caddyfile() == nil {
		return "", nil
	}
	input := i.Caddyfile()
	blocks, err := caddyfile.Parse(input.Path(), bytes.NewReader(input.Body()), nil)
	if err != nil { // CoreDNS has read it already
		return "", nil
	}
	return input.Path(), blocks
}
