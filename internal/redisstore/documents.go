package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/redis"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// keepDocuments is how long a document stays that is not written again. The folders keep it for
// longer.
const keepDocuments = 14 * 24 * time.Hour

// swapScript replaces a document if it is still as it was read, and, if the caller says so, only
// for the holder of the lease. It returns "ok", "fenced", or "changed" and the document.
//
// KEYS: document, lease, token. ARGV: what was read, what to write, milliseconds, channel, id,
// token, most bytes of a document; the token is "" for those who need no lease.
var swapScript = redis.NewScript(`
if ARGV[6] ~= '' and (redis.call('GET', KEYS[2]) ~= ARGV[5] or redis.call('GET', KEYS[3]) ~= ARGV[6]) then
  return {'fenced'}
end
local now = redis.call('GET', KEYS[1])
if now and #now > tonumber(ARGV[7]) then now = false end
if (now or '') ~= ARGV[1] then return {'changed', now} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if ARGV[4] ~= '' then redis.pcall('PUBLISH', ARGV[4], ARGV[5]) end
return {'ok'}`)

// errFenced says that Redis refused a write, since the lease has ended.
var errFenced = errors.New("another relay may fetch lists now")

// Read implements updater.Shared.
func (s *Store) Read(document string) (raw []byte, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.documents[document], s.down == nil && s.mirror.beats > 0
}

// Update implements updater.Shared.
func (s *Store) Update(document string, change func(raw []byte) ([]byte, error)) error {
	return s.swap(document, false, change)
}

// Own implements updater.Shared.
func (s *Store) Own(document string, change func(raw []byte) ([]byte, error)) error {
	s.mu.Lock()
	alone, held := s.alone, s.holds(time.Now())
	s.mu.Unlock()
	switch {
	case alone:
		return updater.ErrAlone
	case !held:
		return errFenced
	}
	return s.swap(document, true, change)
}

// swap replaces a document by what change makes of it.
func (s *Store) swap(document string, own bool, change func(raw []byte) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	select { // else a start would count as a loss of Redis
	case <-s.first:
	case <-ctx.Done():
	}
	s.mu.Lock()
	raw, k, token, down := s.mirror.documents[document], s.keys(), "", s.down
	if own {
		token = s.token
	}
	known := s.mirror.beats > 0
	s.mu.Unlock()
	switch {
	case down != nil:
		return fmt.Errorf("%w: %w", errAway, down)
	case !known:
		return errAway
	}
	for ctx.Err() == nil {
		next, err := change(raw)
		if err != nil {
			return err
		}
		v, err := s.cfg.Client.Eval(ctx, "write", swapScript, []string{k.prefix + document, k.lease, k.token},
			string(raw), string(next), strconv.FormatInt(keepDocuments.Milliseconds(), 10), k.channel, s.id, token, strconv.Itoa(maxValue))
		if err != nil {
			s.kick() // finds out whether Redis can be used
			return err
		}
		answer := v.Array()
		switch {
		case len(answer) == 1 && string(answer[0].Bytes()) == "ok":
			s.wrote(k, document, next)
			return nil
		case len(answer) == 1:
			s.fenced(token)
			return errFenced
		}
		raw = nil
		if len(answer) == 2 {
			raw = answer[1].Bytes()
		}
	}
	return fmt.Errorf("%s is written by others all the time: %w", document, ctx.Err())
}

// wrote notes in the mirror what this process has written.
func (s *Store) wrote(k keys, document string, raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.prefix == Prefix(s.asker) {
		s.mirror.documents[document] = raw
	}
}

// fenced ends a lease that Redis does not know.
func (s *Store) fenced(token string) {
	s.mu.Lock()
	var events []Event
	if s.token == token {
		events = s.dropLease("")
	}
	s.mu.Unlock()
	s.report(events)
	s.kick()
}
