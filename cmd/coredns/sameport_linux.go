package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coredns/caddy"
	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// CoreDNS listens with SO_REUSEPORT, and so can a second one of the same user on the same port:
// the kernel then gives each of them a part of the queries (socket(7)). Neither gets an error.

// samePortEvery is how often this process looks for another one on its ports. It reads two
// files of the kernel and the names of its own sockets.
const samePortEvery = 5 * time.Second

// watchPorts logs other processes that listen where this one does, each once until it is gone. It
// looks as soon as the servers of a Corefile listen, before the last lines of the start, and then
// again and again until the process ends.
func watchPorts() {
	var mu sync.Mutex // guards said
	said := make(map[netip.AddrPort]bool)
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		sayShared(said, sharedPorts("/proc/self"))
	}
	caddy.RegisterEventHook("ports", func(event caddy.EventName, _ any) error {
		if event == caddy.InstanceStartupEvent { // also after a reload
			look()
		}
		return nil
	})
	go func() {
		for range time.Tick(samePortEvery) {
			look()
		}
	}()
}

// sayShared logs what has changed since the last call.
func sayShared(said map[netip.AddrPort]bool, shared map[netip.AddrPort]bool) {
	for at := range shared {
		if !said[at] {
			clog.Warningf("Another process listens on %s, too: each of the two gets a part of the queries. Stop one of them; \"ss -lunp sport = :%d\" shows both", at, at.Port())
		}
		said[at] = true
	}
	for at := range said {
		if !shared[at] {
			clog.Infof("No other process listens on %s any more", at)
			delete(said, at)
		}
	}
}

// sharedPorts returns the addresses where sockets of a process and of others listen for UDP.
// proc is its folder in /proc. What cannot be read counts as nothing.
func sharedPorts(proc string) map[netip.AddrPort]bool {
	own := ownSockets(filepath.Join(proc, "fd"))
	ours, others := make(map[netip.AddrPort]bool), make(map[netip.AddrPort]bool)
	// Each is read twice: a socket may be missing if others are closed while the kernel writes it, page by page.
	for _, name := range []string{"udp", "udp6", "udp", "udp6"} {
		text, _ := os.ReadFile(filepath.Join(proc, "net", name))
		for line := range strings.Lines(string(text)) {
			at, inode, ok := listening(line)
			switch {
			case !ok:
			case own[inode]:
				ours[at] = true
			default:
				others[at] = true
			}
		}
	}
	maps.DeleteFunc(others, func(at netip.AddrPort, _ bool) bool { return !ours[at] })
	return others
}

// listening returns the address and the inode in a line of /proc/net/udp or udp6, and whether
// the socket is bound and not connected (proc_net_udp(5)). All unspecified addresses are one:
// CoreDNS listens on [::] for both families.
func listening(line string) (at netip.AddrPort, inode string, ok bool) {
	fields := strings.Fields(line) // sl, local, remote, st, queues, timer, retransmits, uid, timeout, inode
	if len(fields) < 10 || !strings.HasSuffix(fields[2], ":0000") {
		return at, "", false
	}
	host, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(host)
	n, notPort := strconv.ParseUint(port, 16, 16)
	if err != nil || notPort != nil || len(raw)%4 != 0 {
		return at, "", false
	}
	for i := 0; i < len(raw); i += 4 { // each word is in the order of the machine
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	if address = address.Unmap(); address.IsUnspecified() {
		address = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(address, uint16(n)), fields[9], ok
}

// ownSockets returns the inodes of the sockets in a folder of file descriptors.
func ownSockets(folder string) map[string]bool {
	own := make(map[string]bool)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(folder, e.Name()))
		var inode uint64
		if err == nil {
			if _, err := fmt.Sscanf(target, "socket:[%d]", &inode); err == nil {
				own[strconv.FormatUint(inode, 10)] = true
			}
		}
	}
	return own
}
