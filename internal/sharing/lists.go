package sharing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A content is stored in parts, which are named by its SHA-256 and never change. The head of a
// list names one content. It is replaced last, by a script that refuses all but the holder of the
// lease. The parts of the content before expire soon afterwards, when nobody reads them any more.

const (
	// partBytes bounds one value: a larger one would keep Redis from its other clients for long.
	partBytes = 256 << 10
	// maxContent bounds the content of one list, and so the memory that a head can ask for.
	maxContent = 512 << 20

	keepParts  = 24 * time.Hour   // of the head, if its holder dies; the holder renews it
	keepOld    = 10 * time.Minute // of a content that was replaced
	renewEvery = 10 * time.Minute
	// contentTimeout bounds the transfer of one content.
	contentTimeout = time.Minute
)

// head is the form of a head in Redis.
type head struct {
	updater.Head
	Format int    `json:"format"`
	Writer string `json:"writer"`
	Token  string `json:"token"`
	File   blob   `json:"file"`
	Change blob   `json:"change"` // zero: there is none
}

// blob is bytes in parts.
type blob struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
}

// seenHead is a head as the last beat saw it.
type seenHead struct {
	raw     string
	head    head      // zero: it cannot be used
	visible time.Time // followers do not see it before, so that they do not fetch at once
}

// parts returns the number of parts.
func (b blob) parts() int { return (b.Bytes + partBytes - 1) / partBytes }

// key returns the key of a part.
func (b blob) key(prefix string, i int) string {
	return prefix + "part:" + b.SHA256 + ":" + strconv.Itoa(i)
}

// keys returns the keys of the contents of a head.
func (h head) keys(prefix string) (all []string) {
	for _, b := range []blob{h.File, h.Change} {
		for i := range min(b.parts(), maxContent/partBytes) {
			all = append(all, b.key(prefix, i))
		}
	}
	return all
}

// Head implements updater.Shared.
func (s *Store) Head(list string) (updater.Head, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[list] = true
	h := s.mirror.heads[list]
	now := time.Now()
	if h.head.Format == 0 || s.broken[list] == h.raw || now.Before(h.visible) && !s.holds(now) {
		return updater.Head{}, false
	}
	return h.head.Head, true
}

// File implements updater.Shared.
func (s *Store) File(h updater.Head) ([]byte, error) {
	return s.content(h, func(found head) blob { return found.File })
}

// Change implements updater.Shared.
func (s *Store) Change(h updater.Head) ([]byte, error) {
	return s.content(h, func(found head) blob { return found.Change })
}

// content reads a blob of the head in Redis that has the content of h.
func (s *Store) content(h updater.Head, of func(head) blob) ([]byte, error) {
	s.mu.Lock()
	found, prefix, away := s.mirror.heads[h.List].head, Prefix(s.asker), s.away()
	s.mu.Unlock()
	switch {
	case found.Format == 0 || string(found.Checksum) != string(h.Checksum) || string(found.Version) != string(h.Version):
		return nil, errors.New("the list has been replaced meanwhile")
	case away != nil:
		return nil, away
	}
	return s.fetch(prefix, found, of(found))
}

// fetch reads the parts of a blob of a head, one after the other, and checks them. A head whose
// parts are missing or damaged is discarded.
func (s *Store) fetch(prefix string, h head, b blob) ([]byte, error) {
	if b.Bytes <= 0 || b.Bytes > maxContent {
		return nil, fmt.Errorf("a content of %d bytes", b.Bytes)
	}
	ctx, cancel := context.WithTimeout(context.Background(), contentTimeout)
	defer cancel()
	var raw []byte // grows as parts come: a head alone allocates little
	for i := range b.parts() {
		// Of a part that is too long only enough to see this. A missing one is empty.
		v, err := s.cfg.Client.Do(ctx, "read", "GETRANGE", []string{b.key(prefix, i)}, "0", strconv.Itoa(partBytes))
		if err != nil {
			return nil, err
		}
		if n := len(v.Bytes()); n == 0 || n > partBytes || len(raw)+len(v.Bytes()) > b.Bytes {
			s.discard(ctx, prefix, h)
			return nil, fmt.Errorf("part %d of %d is missing or damaged in redis", i+1, b.parts())
		}
		raw = append(raw, v.Bytes()...)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != b.SHA256 {
		s.discard(ctx, prefix, h)
		return nil, errors.New("the parts in redis have another checksum")
	}
	return raw, nil
}

// headScript replaces a head for the holder of the lease. It returns "fenced", or "ok" and the
// last head.
//
// KEYS: heads, lease, token. ARGV: list, head, milliseconds, channel, id, token.
var headScript = NewScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[5] or redis.call('GET', KEYS[3]) ~= ARGV[6] then
  return {'fenced'}
end
local last = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.pcall('PUBLISH', ARGV[4], ARGV[5])
return {'ok', last}`)

// Publish implements updater.Shared.
func (s *Store) Publish(h updater.Head, file func(io.Writer) error, change []byte) error {
	s.mu.Lock()
	k, token, held := s.keys(), s.token, s.token != "" && s.down == nil
	s.mu.Unlock()
	if !held {
		return errFenced
	}
	ctx, cancel := context.WithTimeout(context.Background(), contentTimeout)
	defer cancel()
	next := head{Head: h, Format: format, Writer: s.cfg.Writer, Token: token}
	var err error
	if next.File, err = s.upload(ctx, k.prefix, file); err != nil {
		return err
	}
	if change != nil {
		next.Change, err = s.upload(ctx, k.prefix, func(w io.Writer) error {
			_, err := w.Write(change)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.flip(ctx, k, next, token)
}

// flip makes next the head of its list.
func (s *Store) flip(ctx context.Context, k keys, next head, token string) error {
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	v, err := s.cfg.Client.Eval(ctx, "publish", headScript, []string{k.heads, k.lease, k.token},
		next.List, string(raw), strconv.FormatInt(keepDocuments.Milliseconds(), 10), k.channel, s.id, token)
	if err != nil {
		return err
	}
	answer := v.Array()
	if len(answer) == 0 || string(answer[0].Bytes()) != "ok" {
		s.fenced(token)
		return errFenced
	}
	s.mu.Lock()
	s.heads[next.List], s.published = string(raw), time.Now()
	delete(s.broken, next.List)
	s.mirror.heads[next.List] = seenHead{raw: string(raw), head: next}
	s.mu.Unlock()
	var last head
	if len(answer) == 2 && json.Unmarshal(answer[1].Bytes(), &last) == nil {
		s.expire(ctx, k.prefix, last, next)
	}
	return nil
}

// expire lets the parts of last expire that next does not have.
func (s *Store) expire(ctx context.Context, prefix string, last, next head) {
	used := next.keys(prefix)
	old := slices.DeleteFunc(last.keys(prefix), func(key string) bool { return slices.Contains(used, key) })
	_, _ = s.keep(ctx, old, keepOld) // else they expire later
}

// Received returns when the contents of the lists in Redis were fetched, as last seen.
func (s *Store) Received() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]time.Time)
	for list, h := range s.mirror.heads {
		if h.head.Format != 0 {
			all[list] = h.head.Received
		}
	}
	return all
}

// upload stores what write writes, in parts. It calls write twice: the parts are named by the
// SHA-256 of all.
func (s *Store) upload(ctx context.Context, prefix string, write func(io.Writer) error) (blob, error) {
	sum := sha256.New()
	var size counter
	if err := write(io.MultiWriter(sum, &size)); err != nil {
		return blob{}, err
	}
	if size == 0 || size > maxContent {
		return blob{}, fmt.Errorf("a content of %d bytes", size)
	}
	b := blob{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: int(size)}
	w := &partWriter{ctx: ctx, store: s, blob: b, prefix: prefix}
	if err := write(w); err != nil {
		return blob{}, err
	}
	return b, w.flush()
}

// counter counts bytes.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// partWriter stores what is written to it, in parts.
type partWriter struct {
	ctx    context.Context
	store  *Store
	blob   blob
	prefix string
	part   []byte
	n      int // parts that are stored
}

// Write implements io.Writer.
func (w *partWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m := min(len(p)-n, partBytes-len(w.part))
		w.part = append(w.part, p[n:n+m]...)
		n += m
		if len(w.part) == partBytes {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush stores the part that is at hand.
func (w *partWriter) flush() error {
	if len(w.part) == 0 {
		return nil
	}
	_, err := w.store.cfg.Client.Do(w.ctx, "publish", "SET", []string{w.blob.key(w.prefix, w.n)}, string(w.part), "PX", strconv.FormatInt(keepParts.Milliseconds(), 10))
	w.part, w.n = w.part[:0], w.n+1
	return err
}

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
	for some := range slices.Chunk(names, 500) {
		v, err := s.cfg.Client.Eval(ctx, "renew", keepScript, some, strconv.FormatInt(d.Milliseconds(), 10))
		if err != nil {
			return false, err
		}
		if n, _ := v.Int(); int(n) < len(some) {
			return false, nil
		}
	}
	return true, nil
}

// damaged reports whether Redis lacks a head that this process has published, or has lost one
// of a list that it keeps. The caller holds mu.
func (s *Store) damaged() bool {
	for list, raw := range s.heads {
		if s.mirror.heads[list].raw != raw {
			return true
		}
	}
	return len(s.mirror.missing) > 0
}

// renewParts keeps all heads and their contents from expiring, from time to time and as the holder
// of the lease. A content that has lost a part is published again, or forgotten if nobody here keeps
// its list.
func (s *Store) renewParts(ctx context.Context) {
	s.mu.Lock()
	due := s.token != "" && time.Since(s.renewed) >= renewEvery
	k := s.keys()
	heads := maps.Clone(s.mirror.heads)
	if due {
		s.renewed = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	for list, h := range heads {
		s.renew(ctx, k, list, h)
	}
}

// renew keeps a head and its content from expiring, unless it has been replaced meanwhile.
func (s *Store) renew(ctx context.Context, k keys, list string, h seenHead) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeout)
	defer cancel()
	_, _ = s.keep(ctx, []string{k.heads}, keepDocuments) // else lists that rest would look lost
	all, err := s.keep(ctx, h.head.keys(k.prefix), keepParts)
	s.mu.Lock()
	now, ok := s.mirror.heads[list]
	kept := s.kept[list]
	s.mu.Unlock()
	switch {
	case ok && now.raw != h.raw:
		s.expire(ctx, k.prefix, h.head, now.head) // flip's may have come before keep
	case err != nil || all:
	case kept:
		s.forget(list)
	default:
		s.discard(ctx, k.prefix, h.head)
	}
}

// forget makes a head unusable, so that its list is published again.
func (s *Store) forget(list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[list] = s.mirror.heads[list].raw
	s.heads[list] = "" // damaged finds it
}
