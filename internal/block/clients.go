package block

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// clients are those who have asked this server for names lately: a hash table of their addresses, that
// queries write to without a lock. A query sets one bit, unless another query of its client has done so
// since the last sweep; all else is done in the sweep, once a minute:
//
//	query ──▶ hash of the address ──▶ slot, bit asked ──sweep──▶ seen: when last, in how many minutes
//
// It starts with 16 KiB, grows with the clients, and keeps maxClients at most, in 512 KiB: those that asked in
// most minutes. No address is in it.
type clients struct {
	secret [4]uint64
	table  atomic.Pointer[clientTable]
}

// clientTable has one size.
type clientTable struct {
	slots []atomic.Uint64 // hashes of clients, and the bit asked; 0: free. A power of two of them
	seen  []seen          // of the client in the slot; only the sweep uses it
}

// seen is what is known of a client.
type seen struct {
	last   uint32 // minute of its last ordinary name, rounded up; 0: it asked for none
	active uint32 // minutes with ordinary names, halved each day
}

const (
	asked = 1 << 0 // of a slot: its client has asked for an ordinary name since the last sweep
	taken = 1 << 1 // of each slot that is not free

	firstSlots = 1 << 10
	mostSlots  = 1 << 15
	maxClients = mostSlots / 2 // as many as a limiter remembers
	probes     = 16            // slots that a client may be in: half of them are free
)

func newClients() *clients {
	c := new(clients)
	for i := range c.secret {
		c.secret[i] = rand.Uint64()
	}
	c.table.Store(newClientTable(firstSlots))
	return c
}

func newClientTable(slots int) *clientTable {
	return &clientTable{make([]atomic.Uint64, slots), make([]seen, slots)}
}

// keyOf returns the hash of the address of a client, or 0 if it has none. Who does not know the secret cannot
// choose addresses with equal hashes.
func (c *clients) keyOf(ip net.IP) uint64 {
	var high, low uint64
	switch len(ip) {
	case net.IPv4len: // as in IPv6 (RFC 4291, section 2.5.5.2)
		low = 0xffff<<32 | uint64(binary.BigEndian.Uint32(ip))
	case net.IPv6len:
		high, low = binary.BigEndian.Uint64(ip), binary.BigEndian.Uint64(ip[8:])
	default:
		return 0
	}
	high, low = bits.Mul64(high^c.secret[0], low^c.secret[1]) // as wyhash does
	high, low = bits.Mul64(high^c.secret[2], low^c.secret[3])
	return (high^low)&^asked | taken
}

// ClientOf returns the address of a client, without a zone; the zero Addr if it has none. It does not allocate
// for a client that asks over UDP, TCP, TLS or HTTPS.
func ClientOf(from net.Addr) netip.Addr {
	client, _ := netip.AddrFromSlice(ipOf(from))
	return client.Unmap()
}

// ipOf returns the bytes of the address of a client.
func ipOf(from net.Addr) net.IP {
	switch a := from.(type) {
	case *net.UDPAddr:
		return a.IP
	case *net.TCPAddr:
		return a.IP
	case nil:
		return nil
	}
	at, _ := netip.ParseAddrPort(from.String())
	return at.Addr().AsSlice()
}

// ordinary notes that a client asks for an ordinary name. It takes no lock, does not allocate, and writes
// only if the client has not asked since the last sweep. A client that finds no slot is not noted.
func (c *clients) ordinary(key uint64) {
	slots := c.table.Load().slots
	for i := range uint64(probes) {
		slot := &slots[place(key, i, len(slots))]
		switch v := slot.Load(); v {
		case key | asked:
			return
		case key:
			slot.CompareAndSwap(key, key|asked)
			return
		case 0:
			if slot.CompareAndSwap(0, key|asked) || slot.Load()|asked == key|asked {
				return
			}
		}
	}
}

// place returns where the i-th probe for a client is, in a power of two of slots. Each client has steps of its
// own (double hashing): of a table that is half full, one client in 65,000 finds no slot.
func place(key, i uint64, slots int) uint64 { return (key>>32 + i*(key>>2|1)) & uint64(slots-1) }

// find returns what is known of a client, or nil. Only the sweep, or who keeps it out, may call it.
func (t *clientTable) find(key uint64) *seen {
	for i := range uint64(probes) {
		at := place(key, i, len(t.slots))
		if t.slots[at].Load()|asked == key|asked {
			return &t.seen[at]
		}
	}
	return nil
}

// sweep calls back for each client that asked for an ordinary name since the last sweep, and makes room. The
// minute is at least 1; with halve a day has passed. It reports whether the table was so full that clients may
// have found no slot. Sweeps follow one another.
func (c *clients) sweep(minute uint32, halve bool, back func(key uint64, active uint32)) (crowded bool) {
	t := c.table.Load()
	used := 0
	for i := range t.slots {
		v := t.slots[i].Load()
		if v == 0 {
			continue
		}
		used++
		s := &t.seen[i]
		if halve {
			s.active /= 2
		}
		if v&asked == 0 {
			continue
		}
		t.slots[i].And(^uint64(asked))
		s.last, s.active = minute, s.active+1
		back(v&^asked, s.active)
	}
	if used > len(t.slots)/2 {
		c.table.Store(t.remade(minute))
	}
	return used > len(t.slots)*5/8
}

const minutesOfDay = 24 * 60

// known is a client and what is known of it.
type known struct {
	key uint64
	seen
}

// remade returns a table with room: without clients that asked for nothing in two days, and if the rest are
// too many without those that asked in the fewest minutes. Queries may still write to t, which is lost.
func (t *clientTable) remade(minute uint32) *clientTable {
	var all []known
	for i := range t.slots {
		if v := t.slots[i].Load(); v != 0 && minute-t.seen[i].last < 2*minutesOfDay {
			all = append(all, known{v &^ asked, t.seen[i]})
		}
	}
	if most := maxClients * 3 / 4; len(all) > most {
		slices.SortFunc(all, func(a, b known) int { return cmp.Or(cmp.Compare(b.active, a.active), cmp.Compare(b.last, a.last)) })
		all = all[:most]
	}
	size := firstSlots
	for size < 4*len(all) && size < mostSlots {
		size *= 2
	}
	made := newClientTable(size)
	for _, k := range all {
		for i := range uint64(probes) {
			at := place(k.key, i, size)
			if made.slots[at].Load() == 0 {
				made.slots[at].Store(k.key)
				made.seen[at] = k.seen
				break
			}
		}
	}
	return made
}
