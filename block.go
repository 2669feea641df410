package safebrowsing

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
)

// start gives a server block its lists and its engine.
func (s *SafeBrowsing) start() error {
	if err := s.policy.Open(); err != nil {
		return err
	}
	s.release = s.watchPauses()
	if s.cfg.Online {
		if err := s.startEngine(); err != nil {
			return err
		}
	}
	s.endAlso(s.openStatus())
	return nil
}

// startEngine gives a server block its engine.
func (s *SafeBrowsing) startEngine() error {
	e, release, err := engine.Default.Acquire(s.cfg.Settings, s.cfg.Secret)
	if err != nil {
		s.policy.Close()
		s.release()
		return err
	}
	s.endAlso(release)
	s.use(e)
	return nil
}

// endAlso has the end of the server block call end too.
func (s *SafeBrowsing) endAlso(end func()) {
	before := s.release
	s.release = func() {
		before()
		end()
	}
}

// use has the server block decide by an engine too.
func (s *SafeBrowsing) use(e *engine.Engine) {
	s.engine.Store(e)
	s.policy.Use(policy.Source{Checker: e.Checker, Shares: e.Shares, FetchHold: e.FetchHold, SearchHold: e.SearchHold})
}

// end waits for what outlives its queries, and lets go of what start took.
func (s *SafeBrowsing) end() {
	s.detached.end()
	s.policy.Close()
	s.release()
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
	if err := s.start(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generations[s] = generation
	return nil
}

// end ends a server block, once.
func (b *started) end(s *SafeBrowsing) {
	b.mu.Lock()
	_, ok := b.generations[s]
	delete(b.generations, s)
	b.mu.Unlock()
	if ok {
		s.end()
	}
}

// blocks returns the server blocks that have started and not ended.
func (b *started) blocks() []*SafeBrowsing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.generations))
}

// endDead ends the server blocks of instances that do not serve, but for those of a
// generation that is being started; 0 is none. CoreDNS does not shut down a new
// instance whose listeners could not be bound: it only tells the old one that the
// restart has failed. It does so too when the new instance serves and the old one
// could not be shut down in order.
func (b *started) endDead(spared uint64) {
	live := liveGenerations()
	b.mu.Lock()
	var dead []*SafeBrowsing
	for s, generation := range b.generations {
		if generation != spared && !live[generation] {
			dead = append(dead, s)
		}
	}
	b.mu.Unlock()
	for _, s := range dead {
		b.end(s)
	}
}

// instanceKey is where this plugin keeps its own in the storage of a CoreDNS
// instance. Each reading of the Corefile makes an instance.
type instanceKey struct{}

type instance struct{ generation uint64 }

var generations atomic.Uint64

func instanceOf(c *caddy.Controller) *instance {
	if i, ok := c.Get(instanceKey{}).(*instance); ok {
		return i
	}
	i := &instance{generation: generations.Add(1)}
	c.Set(instanceKey{}, i)
	return i
}

// generationOf returns a number that grows with each reading of the Corefile.
func generationOf(c *caddy.Controller) uint64 { return instanceOf(c).generation }

// liveGenerations are those of the instances that serve, or are being started.
func liveGenerations() map[uint64]bool {
	live := make(map[uint64]bool)
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		if ours, ok := i.Storage[instanceKey{}].(*instance); ok {
			live[ours.generation] = true
		}
		i.StorageMu.RUnlock()
	}
	return live
}
