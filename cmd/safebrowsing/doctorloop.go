package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"
)

// systemResolvers returns the system's resolvers as "address:port". It returns none if it
// cannot read the file.
func systemResolvers(resolvConf string) (all []string) {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil
	}
	for _, server := range conf.Servers {
		all = append(all, net.JoinHostPort(server, conf.Port))
	}
	return all
}

// machineAddresses returns the addresses of this machine.
func machineAddresses() (all []netip.Addr) {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, prefix.Addr())
		}
	}
	return all
}

// loop examines whether CoreDNS would resolve the names of servers through itself: once,
// since the same resolvers know all of them.
func (e *examination) loop(o *Offline) {
	if e.looked {
		return
	}
	endpoint := e.endpoint
	e.looked, e.endpoint = true, ""
	e.tell(loopDiagnosis(o.Resolvers(), systemResolvers(e.resolvConf), machineAddresses(), e.blocks))
	e.endpoint = endpoint
}

// loopDiagnosis says whether CoreDNS would resolve the name of the server through itself.
// If the stanza has no resolver, the system's are used. A system resolver on this machine
// is always suspicious: it may forward to CoreDNS.
func loopDiagnosis(configured, system []string, machine []netip.Addr, blocks []serverBlock) diagnosis {
	const advice = "set another resolver in the stanza, for example: resolver 9.9.9.9"
	resolvers := configured
	if len(configured) == 0 {
		resolvers = system
	}
	for _, r := range resolvers {
		server, err := netip.ParseAddrPort(r)
		if err != nil {
			continue
		}
		address := server.Addr().Unmap().WithZone("")
		local := address.IsLoopback() || address.IsUnspecified() || slices.Contains(machine, address)
		switch {
		case local && listensAt(blocks, address, server.Port()):
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by %s, where this Corefile listens: "+
				"to fetch lists, CoreDNS would first need its own answer", r)), advice}
		case len(configured) == 0 && address.IsLoopback():
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by the system's resolver %s on this machine: "+
				"it may ask this CoreDNS in turn", r)), advice}
		}
	}
	return diagnosis{"loop", isOK, "the server's name is resolved elsewhere", ""}
}

// listensAt reports whether a Corefile listens for plain DNS at an address of this machine.
// It assumes that a block bound to interfaces does.
func listensAt(blocks []serverBlock, address netip.Addr, port uint16) bool {
	for _, b := range blocks {
		for _, l := range b.listeners {
			if l.transport == transport.DNS && l.port == fmt.Sprint(port) && b.boundTo(address) {
				return true
			}
		}
	}
	return false
}

// boundTo reports whether the block may listen at an address.
func (b *serverBlock) boundTo(address netip.Addr) bool {
	return len(b.bind) == 0 || slices.ContainsFunc(b.bind, func(word string) bool {
		bound, err := netip.ParseAddr(word)
		return err != nil || bound.IsUnspecified() || bound.Unmap() == address
	})
}
