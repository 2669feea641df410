package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// loop examines whether CoreDNS would resolve the names of servers through itself: once,
// since the same resolvers know all of them.
func (e *examination) loop(o *block.Block) {
	if e.looked {
		return
	}
	endpoint := e.endpoint
	e.looked, e.endpoint = true, ""
	e.tell(loopDiagnosis(strings.Fields(o.Config.Resolvers), config.SystemResolvers(e.resolvConf), config.MachineAddresses(), e.blocks))
	e.endpoint = endpoint
}

// loopDiagnosis says whether CoreDNS would resolve the name of the server through itself.
// If the stanza has no resolver, the system's are used. A system resolver on this machine
// is always suspicious: it may forward to CoreDNS.
func loopDiagnosis(configured, system []string, machine []netip.Addr, blocks []serverBlock) diagnosis {
	const advice = "set another resolver, such as 9.9.9.9"
	resolvers := configured
	if len(configured) == 0 {
		resolvers = system
	}
	for _, r := range resolvers {
		at, local := config.LocalResolver(r, machine)
		switch {
		case local && listensAt(blocks, at):
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by %s, where this Corefile listens: "+
				"to fetch lists, CoreDNS would first need its own answer", r)), advice}
		case len(configured) == 0 && at.Addr().IsLoopback():
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by the system's resolver %s on this machine: "+
				"it may ask this CoreDNS in turn", r)), advice}
		}
	}
	return diagnosis{"loop", isOK, "the server's name is resolved elsewhere", ""}
}

// listensAt reports whether a Corefile listens for plain DNS at an address of this machine.
func listensAt(blocks []serverBlock, at netip.AddrPort) bool {
	return slices.ContainsFunc(blocks, func(b serverBlock) bool { return b.At(at.Addr(), at.Port()) })
}
