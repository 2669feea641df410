package sharing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

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
var swapScript = NewScript(`
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

// Read implements updater.Medium. It never waits.
func (s *Store) Read(document string) (raw []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.documents[document], s.away()
}

// away returns why Redis cannot be used, or nil. The caller holds mu.
func (s *Store) away() error {
	switch {
	case s.down != nil:
		return fmt.Errorf("%w: %w", errAway, s.down)
	case s.mirror.beats == 0:
		return errAway
	}
	return nil
}

// Swap implements updater.Medium. It waits for a second at most.
func (s *Store) Swap(document string, old, next []byte) error {
	return s.swap(document, false, old, next)
}

// Leased implements updater.Shared.
func (s *Store) Leased() updater.Medium { return leased{s} }

// leased is the Medium of the holder of the lease.
type leased struct{ *Store }

// Swap implements updater.Medium.
func (l leased) Swap(document string, old, next []byte) error {
	l.mu.Lock()
	alone, held := l.alone, l.holds(time.Now())
	l.mu.Unlock()
	switch {
	case alone:
		return updater.ErrAlone
	case !held:
		return errFenced
	}
	return l.swap(document, true, old, next)
}

// swap replaces a document if it is still old, and, if own is set, only for the holder of the lease.
func (s *Store) swap(document string, own bool, old, next []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.timeout)
	defer cancel()
	waited := false
	select {
	case <-s.first:
	default: // else a start would count as a loss of Redis
		waited = true
		select {
		case <-s.first:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	k, token, away := s.keys(), "", s.away()
	if own {
		token = s.token
	}
	s.mu.Unlock()
	switch {
	case away != nil:
		return away
	case waited: // neither the document nor the time of Redis was known
		return updater.ErrConflict
	}
	v, err := s.cfg.Client.Eval(ctx, "write", swapScript, []string{k.prefix + document, k.lease, k.token},
		string(old), string(next), strconv.FormatInt(keepDocuments.Milliseconds(), 10), k.channel, s.id, token, strconv.Itoa(maxValue))
	if err != nil {
		s.kick() // finds out whether Redis can be used
		return err
	}
	switch answer := v.Array(); {
	case len(answer) == 1 && string(answer[0].Bytes()) == "ok":
		s.noted(k, document, next)
		return nil
	case len(answer) == 1 && string(answer[0].Bytes()) == "fenced":
		s.fenced(token)
		return errFenced
	case len(answer) == 2 && !answer[1].IsNil():
		s.noted(k, document, answer[1].Bytes())
	default:
		s.noted(k, document, nil)
	}
	return updater.ErrConflict
}

// noted notes the content of a document in the mirror; nil: there is none.
func (s *Store) noted(k keys, document string, raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case k.prefix != Prefix(s.asker), s.mirror.documents == nil: // of another key
	case raw == nil:
		delete(s.mirror.documents, document)
	default:
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
