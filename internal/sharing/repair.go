package sharing

import (
	"context"
	"maps"
	"strconv"
	"time"
)

// Contents that Redis has lost, or changed. Who finds one discards its head, and the holder of
// the lease publishes it again.

// discardScript removes a head, unless it has been replaced, and wakes the holder of the lease.
//
// KEYS: heads. ARGV: list, head, channel, id.
var discardScript = NewScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.pcall('PUBLISH', ARGV[3], ARGV[4])
return 1`)

// discard removes a head whose parts are missing or damaged.
func (s *Store) discard(ctx context.Context, prefix string, h head) {
	s.mu.Lock()
	k, seen := s.keys(), s.mirror.heads[h.List]
	if k.prefix != prefix || seen.head.File != h.File || seen.head.Change != h.Change {
		s.mu.Unlock()
		return // it has been replaced
	}
	delete(s.mirror.heads, h.List)
	s.mu.Unlock()
	_, _ = s.cfg.Client.Eval(ctx, "discard", discardScript, []string{k.heads}, h.List, seen.raw, k.channel, s.id) // the next one who reads it tries again
}

// keepScript sets the time to live of keys, and returns how many of them exist.
var keepScript = NewScript(`
local n = 0
for _, key in ipairs(KEYS) do n = n + redis.call('PEXPIRE', key, ARGV[1]) end
return n`)

// keep sets the time to live of keys, and reports whether all exist.
func (s *Store) keep(ctx context.Context, names []string, d time.Duration) (all bool, err error) {
	const atOnce = 500
	for len(names) > 0 {
		some := names[:min(len(names), atOnce)]
		v, err := s.cfg.Client.Eval(ctx, "renew", keepScript, some, strconv.FormatInt(d.Milliseconds(), 10))
		if err != nil {
			return false, err
		}
		if n, _ := v.Int(); int(n) < len(some) {
			return false, nil
		}
		names = names[len(some):]
	}
	return true, nil
}

// damaged reports whether Redis lacks a head that this process has published, or has lost one
// of a list that it keeps. The caller holds mu.
func (s *Store) damaged() bool {
	for list := range s.mirror.missing {
		if s.kept[list] {
			return true
		}
	}
	for list, raw := range s.heads {
		if s.mirror.heads[list].raw != raw {
			return true
		}
	}
	return false
}

// renewParts keeps the contents of all heads from expiring, from time to time and as the holder
// of the lease. A content that has lost a part is published again, or forgotten if nobody here keeps
// its list.
func (s *Store) renewParts(ctx context.Context) {
	s.mu.Lock()
	due := s.token != "" && time.Since(s.renewed) >= renewEvery
	prefix := Prefix(s.asker)
	heads := make(map[string]head, len(s.mirror.heads))
	for list, h := range s.mirror.heads {
		heads[list] = h.head
	}
	kept := maps.Clone(s.kept)
	if due {
		s.renewed = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	for list, h := range heads {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		all, err := s.keep(limited, h.keys(prefix), keepParts)
		switch {
		case err != nil || all:
		case kept[list]:
			s.forget(list)
		default:
			s.discard(limited, prefix, h)
		}
		cancel()
	}
}

// forget makes a head unusable, so that its list is published again.
func (s *Store) forget(list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[list] = s.mirror.heads[list].raw
	s.heads[list] = "" // damaged finds it
}
