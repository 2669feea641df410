package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// shot is one query of a load and when its answer came.
type shot struct {
	at      time.Time
	latency time.Duration // lost: no answer came
	stall   time.Duration // in which no query was sent before this one, though some were due
}

const lost = time.Duration(-1)

// load sends queries at a fixed rate, whether answers come or not, from one
// socket.
type load struct {
	conn    *net.UDPConn
	packets [][]byte      // queries, whose IDs are set as they are sent
	gap     time.Duration // between two queries

	stalls   map[int]time.Duration // before the query of that number
	sent     []time.Time           // number i has the ID i modulo 65536
	answered []atomic.Int64        // when, in ns of Unix time; 0: not yet
	count    atomic.Int64          // how many have been sent
	open     atomic.Int64          // how many of them have not been answered
}

// maxBehind is how late queries may be made up for, in a burst. Beyond, after a
// stall of this program or of its machine, they are left out: a burst would
// measure itself.
const maxBehind = 5 * time.Millisecond

// lastAnswers is how long answers to the last queries are waited for.
const lastAnswers = time.Second

// shoot sends queries for names in turn for length, or until ctx ends, which is
// no error.
func shoot(ctx context.Context, address string, names []string, rate int, length time.Duration) ([]shot, error) {
	l, err := newLoad(address, names, rate, length)
	if err != nil {
		return nil, err
	}
	defer l.conn.Close()
	var receiving sync.WaitGroup
	receiving.Go(l.receive) // ends when the socket's deadline has passed
	l.send(ctx, length)
	for end := time.Now().Add(lastAnswers); l.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(lastAnswers / 100)
	}
	l.conn.SetReadDeadline(time.Now())
	receiving.Wait()
	return l.shots(), nil
}

func newLoad(address string, names []string, rate int, length time.Duration) (*load, error) {
	l := &load{gap: time.Second / time.Duration(rate), stalls: make(map[int]time.Duration)}
	for _, name := range names {
		packet, err := new(dns.Msg).SetQuestion(name+".", dns.TypeA).Pack()
		if err != nil {
			return nil, err
		}
		l.packets = append(l.packets, packet)
	}
	if len(l.packets) == 0 {
		return nil, errors.New("no names to ask for")
	}
	n := int(length/l.gap) + 1
	l.sent, l.answered = make([]time.Time, n), make([]atomic.Int64, n)
	conn, err := net.Dial("udp", address)
	if err != nil {
		return nil, err
	}
	l.conn = conn.(*net.UDPConn)
	return l, stampArrivals(l.conn)
}

func (l *load) send(ctx context.Context, length time.Duration) {
	begun := time.Now()
	due := begun
	for i := range l.sent {
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		} else if wait < -maxBehind {
			due = due.Add(-wait)
			l.stalls[i] = -wait
		}
		due = due.Add(l.gap)
		if ctx.Err() != nil || time.Since(begun) >= length {
			return
		}
		packet := l.packets[i%len(l.packets)]
		binary.BigEndian.PutUint16(packet, uint16(i))
		l.sent[i] = time.Now()
		l.count.Store(int64(i) + 1)
		l.open.Add(1)
		l.conn.Write(packet) // what is refused counts as lost
	}
}

// receive notes when answers come, by the clock of the kernel where it tells:
// the answer may have to wait for this program.
func (l *load) receive() {
	packet, control := make([]byte, 4096), make([]byte, 256)
	for {
		n, c, _, _, err := l.conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || isTimeout(err) {
				return
			}
			continue // the server's port was closed for a moment
		}
		arrived := arrival(control[:c])
		if i := l.number(packet[:n]); i >= 0 && l.answered[i].CompareAndSwap(0, arrived.UnixNano()) {
			l.open.Add(-1)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// number returns which query a packet answers: the last one of its ID; -1: none.
func (l *load) number(packet []byte) int {
	if len(packet) < 12 {
		return -1
	}
	count := int(l.count.Load())
	back := (count - 1 - int(binary.BigEndian.Uint16(packet))) & 0xffff
	return count - 1 - back
}

func (l *load) shots() []shot {
	all := make([]shot, l.count.Load())
	for i := range all {
		all[i] = shot{at: l.sent[i], latency: lost, stall: l.stalls[i]}
		if ns := l.answered[i].Load(); ns != 0 {
			all[i].latency = max(0, time.Unix(0, ns).Sub(l.sent[i]))
		}
	}
	return all
}

// within returns the shots of a window of time.
func within(shots []shot, from time.Time, length time.Duration) []shot {
	first, _ := slices.BinarySearchFunc(shots, from, func(s shot, t time.Time) int { return s.at.Compare(t) })
	last, _ := slices.BinarySearchFunc(shots, from.Add(length), func(s shot, t time.Time) int { return s.at.Compare(t) })
	return shots[first:last]
}

// latencies returns the latencies of shots, ascending, and how many were lost.
func latencies(shots []shot) (ascending []time.Duration, missing int) {
	for _, s := range shots {
		if s.latency == lost {
			missing++
			continue
		}
		ascending = append(ascending, s.latency)
	}
	slices.Sort(ascending)
	return ascending, missing
}

// stalled returns for how long the load stood still among the shots: what the
// server did meanwhile nobody has seen.
func stalled(shots []shot) (sum time.Duration) {
	for _, s := range shots {
		sum += s.stall
	}
	return sum
}
