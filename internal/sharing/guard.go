package sharing

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// The library believes what Redis sends: a length that is too large, an answer that nobody asked
// for or a redirect without an address end the process, in a goroutine that nobody can recover. So
// a guard reads along, and lets nothing pass that the library would trip over.

// errLies says that a Redis does not speak as Redis does.
var errLies = errors.New("what answers there does not speak as Redis does")

// errRESP2 says that a Redis is too old.
var errRESP2 = errors.New("this Redis does not speak RESP3: Redis 6.2 or Valkey 7.2 is needed")

// guard watches over one connection: commands in one goroutine, answers in another. The zero guard
// is not ready for use, see newGuard.
type guard struct {
	commands, answers scanner

	mu   sync.Mutex
	due  []due // answers that Redis owes, in this order; guarded by mu
	ping bool  // the next PING belongs to an unsubscription; guarded by mu
	skip int   // confirmations of a subscription that are still to come; of answers
}

// due is an answer that Redis owes.
type due struct {
	kind   answerKind
	n      int  // channels of a subscription; the least elements of an array
	failed bool // an unsubscription was refused, and PONG is still to come
}

type answerKind uint8

const (
	anything answerKind = iota
	subscribed
	unsubscribed // PONG, which the library asks for after each UNSUBSCRIBE
)

func newGuard() *guard {
	g := new(guard)
	g.commands.end, g.answers.end = g.asked, g.answered
	return g
}

// asked notes a command of the library.
func (g *guard) asked(m *message) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := due{}
	switch name := string(m.words[0]); name {
	case "HELLO":
		if string(m.words[1]) == "2" {
			return errRESP2 // a RESP2 has no pushes: an array could be one
		}
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		d = due{kind: subscribed, n: m.n - 1}
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		d.kind, g.ping = unsubscribed, true
	case "PING":
		if g.ping {
			g.ping = false
			return nil
		}
	case "ROLE":
		d.n = 1
	case "SENTINEL":
		if bytes.EqualFold(m.words[1], []byte("get-master-addr-by-name")) {
			d.n = 2
		}
	}
	g.due = append(g.due, d)
	return nil
}

// answered checks an answer or a push.
func (g *guard) answered(m *message) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.kind == '>' {
		return g.pushed(m)
	}
	if len(g.due) == 0 {
		return errors.New("an answer comes that nobody asked for")
	}
	if d := &g.due[0]; d.kind == unsubscribed {
		over, err := d.unsubscribed(m)
		if !over || err != nil {
			return err
		}
	} else if err := d.fits(m); err != nil {
		return err
	}
	g.due = g.due[1:]
	return nil
}

// fits returns why m is not an answer that is due.
func (d *due) fits(m *message) error {
	text := m.words[0]
	switch {
	case d.kind == subscribed && (m.kind != '-' || string(text) == "QUEUED"):
		return errors.New("a subscription is answered by something else")
	case m.n >= 0:
		if m.n < d.n {
			return fmt.Errorf("an answer has %d elements, and needs %d", m.n, d.n)
		}
	case m.kind != '-' && m.kind != '!':
	case bytes.HasPrefix(text, []byte("MOVED")), bytes.HasPrefix(text, []byte("ASK")), bytes.HasPrefix(text, []byte("REDIRECT")):
		if bytes.Count(text, []byte(" ")) < 2 {
			return errors.New("a redirect has no address")
		}
	}
	return nil
}

// unsubscribed reports whether m is the PONG that ends an unsubscription.
func (d *due) unsubscribed(m *message) (over bool, err error) {
	text := m.words[0]
	refused := bytes.HasPrefix(text, []byte("LOADING")) || bytes.HasPrefix(text, []byte("BUSY")) || bytes.Contains(text, []byte("'ping'"))
	switch {
	case (m.kind == '+' || m.kind == '$') && string(text) == "PONG":
		return true, nil
	case m.kind != '-' || len(text) == keptText || string(text) == "QUEUED":
		return false, errors.New("an unsubscription is answered by something else")
	case refused || string(text) == "PONG":
		return true, nil
	case d.failed:
		return false, errors.New("an unsubscription is answered twice")
	}
	d.failed = true
	return false, nil
}

// pushed checks a push.
func (g *guard) pushed(m *message) error {
	if m.n < 2 {
		return nil // the library ignores it
	}
	switch string(m.words[0]) {
	case "subscribe", "psubscribe", "ssubscribe":
		if g.skip == 0 {
			if len(g.due) == 0 || g.due[0].kind != subscribed {
				return errors.New("a subscription comes that nobody asked for")
			}
			g.skip, g.due = g.due[0].n, g.due[1:]
		}
		g.skip--
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		g.skip = max(0, g.skip-1)
	case "message":
		if words := bytes.Count(m.words[2], []byte(" ")) + 1; words < fewestWords[string(m.words[1])] {
			return fmt.Errorf("a Sentinel tells of %s in %d words", m.words[1], words)
		}
	}
	return nil
}

// fewestWords are how many words a message of a Sentinel must have for the library, by channel
// (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/, "Pub/Sub messages").
var fewestWords = map[string]int{"+sentinel": 4, "+switch-master": 5, "+reboot": 4}

// sent looks at what the library sends.
func (g *guard) sent(p []byte) error { return g.commands.scan(p) }

// received looks at what Redis sends.
func (g *guard) received(p []byte) error {
	if err := g.answers.scan(p); err != nil {
		return fmt.Errorf("%w: %w", errLies, err)
	}
	return nil
}
