package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// see looks at a machine whose files are below root.
func see(root string) *machine {
	m := &machine{networks: networksOf(root), servers: dnsmasqServers(root)}
	m.holders, m.unseen = holdersOf(filepath.Join(root, "proc"))
	m.unread = !dnsmasqReads(root, path.Dir(dnsmasqFile))
	_, err := os.Stat(filepath.Join(root, "run/systemd/system"))
	m.systemd = err == nil
	links, _ := filepath.Glob(filepath.Join(root, "etc/systemd/system/*.wants/*.service"))
	for _, link := range links {
		m.enabled = append(m.enabled, filepath.Base(link))
	}
	processes, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*"))
	m.runs = slices.ContainsFunc(processes, func(process string) bool { return unitOf(process) == setupUnit })
	key, err := os.ReadFile(filepath.Join(root, setupFolder, "safebrowsing.key"))
	m.hasKey = len(bytes.TrimSpace(key)) > 0 || errors.Is(err, fs.ErrPermission) // an empty one is none, as for the server
	for _, f := range fronts {
		if text, _ := os.ReadFile(filepath.Join(root, f.idle.path)); strings.Contains(string(text), f.asks) {
			m.led = append(m.led, f)
		}
	}
	m.later = laterServers(root)
	m.firewall = firewallOf(root)
	m.blocked = blockedIn(root)
	for _, file := range []string{"etc/resolv.conf", "run/systemd/resolve/resolv.conf"} { // the latter is behind systemd-resolved
		text, _ := os.ReadFile(filepath.Join(root, file))
		if m.resolvers = m.resolversIn(string(text)); len(m.resolvers) > 0 {
			break
		}
	}
	return m
}

// blockedIn returns a name that the lists of the package block, by the exceptions and pauses that are there; "": none.
func blockedIn(root string) string {
	var c config.Config
	c.Zones, c.DB = []string{"."}, filepath.Join(root, setupLists)
	for _, allow := range []bool{true, false} {
		if path := filepath.Join(root, setupFolder, ownWord(allow)+".txt"); exists(path) {
			c.Own = append(c.Own, config.OwnFile{Path: path, Allow: allow})
		}
	}
	b := block.New(c)
	if b.Read() != nil { // the check of the Corefile says why
		return ""
	}
	defer b.End()
	return listedName(b)
}

// networksOf returns the networks that this machine has an address in that stays: an IPv4 address, or
// a unique local one of IPv6 (RFC 4193), in the order of the interfaces. The provider's IPv6 addresses
// may change each day.
func networksOf(root string) (all []network) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/net/if_inet6"))
	unique := uniqueLocal(string(text))
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 {
			continue
		}
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Is4() && !p.Addr().IsLinkLocalUnicast() {
				all = append(all, network{i.Name, p.Addr(), p.Masked(), false})
			}
		}
		for _, n := range unique {
			if n.name == i.Name {
				all = append(all, n)
			}
		}
	}
	return all
}

// uniqueLocal returns the networks of the unique local addresses in a text like /proc/net/if_inet6:
// address, index, length of the prefix, scope, flags, name. Temporary and tentative addresses and
// those that are deprecated or have failed are left out (linux/if_addr.h).
func uniqueLocal(text string) (all []network) {
	const temporary, failed, deprecated, tentative, permanent = 0x01, 0x08, 0x20, 0x40, 0x80
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 6 {
			continue
		}
		raw, notHex := hex.DecodeString(words[0])
		address, ok := netip.AddrFromSlice(raw)
		bits, notBits := strconv.ParseInt(words[2], 16, 0)
		flags, notFlags := strconv.ParseUint(words[4], 16, 32)
		if notHex != nil || notBits != nil || notFlags != nil || !ok || !address.Is6() || !address.IsPrivate() || flags&(temporary|failed|deprecated|tentative) != 0 {
			continue
		}
		if prefix, err := address.Prefix(int(bits)); err == nil {
			all = append(all, network{words[5], address, prefix, flags&permanent == 0})
		}
	}
	return all
}

// resolversIn returns the addresses in a resolv.conf(5) that are not on the machine.
func (m *machine) resolversIn(text string) (all []netip.Addr) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(words[1])
		own := slices.ContainsFunc(m.networks, func(n network) bool { return n.address == a })
		if err == nil && !a.IsLoopback() && a.Zone() == "" && !own {
			all = append(all, a)
		}
	}
	return all
}

// dnsmasqServers returns the lines of dnsmasq's files that name a resolver for all names: server=ADDRESS, or
// server=/#/ADDRESS. One for some names is server=/DOMAIN/ADDRESS. The file that setup writes is left out, and copies that dnsmasq does not read.
func dnsmasqServers(root string) (all []string) {
	paths, _ := filepath.Glob(filepath.Join(root, "etc/dnsmasq.d/*"))
	for _, path := range append([]string{filepath.Join(root, "etc/dnsmasq.conf")}, paths...) {
		if strings.HasSuffix(path, dnsmasqFile) || strings.HasSuffix(path, "~") {
			continue
		}
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			word, value, _ := strings.Cut(line, "=")
			if strings.TrimSpace(word) == "server" && (strings.Contains(value, "/#/") || !strings.HasPrefix(strings.TrimSpace(value), "/")) {
				all = append(all, path+": "+strings.TrimSpace(line))
			}
		}
	}
	return all
}

// laterServers returns the lines that name a resolver in files that systemd-resolved reads after the one of setup, by their
// names, in whichever folder (resolved.conf(5)): they add to what it has.
func laterServers(root string) (all []string) {
	var paths []string
	for _, folder := range []string{"etc", "run", "usr/local/lib", "usr/lib"} {
		more, _ := filepath.Glob(filepath.Join(root, folder, "systemd/resolved.conf.d/*.conf"))
		paths = append(paths, more...)
	}
	for _, path := range paths {
		if filepath.Base(path) <= filepath.Base(resolvedFile("").path) {
			continue
		}
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			word, value, _ := strings.Cut(line, "=")
			if strings.TrimSpace(word) == "DNS" && strings.TrimSpace(value) != "" {
				all = append(all, path+": "+strings.TrimSpace(line))
			}
		}
	}
	return all
}

// dnsmasqReads reports whether dnsmasq reads the files of a folder: by its configuration, or as Debian's by its arguments.
func dnsmasqReads(root, folder string) bool {
	conf, _ := os.ReadFile(filepath.Join(root, "etc/dnsmasq.conf"))
	for line := range strings.Lines(string(conf)) {
		word, value, _ := strings.Cut(line, "=")
		name, _, _ := strings.Cut(value, ",") // then which files
		if strings.TrimSpace(word) == "conf-dir" && path.Clean(strings.TrimSpace(name)) == folder {
			return true
		}
	}
	processes, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*"))
	return slices.ContainsFunc(processes, func(process string) bool {
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		arguments, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		return strings.TrimSpace(string(name)) == "dnsmasq" && strings.Contains(string(arguments), folder)
	})
}

// firewallOf returns what opens port 53 in the firewall of a machine, where it keeps ports closed by default; "": none is
// seen.
func firewallOf(root string) string {
	for _, f := range []struct{ file, says, opens string }{
		{"sys/fs/cgroup/system.slice/firewalld.service/cgroup.procs", "", "sudo firewall-cmd --permanent --add-service=dns && sudo firewall-cmd --reload"},
		{"etc/ufw/ufw.conf", "\nENABLED=yes", "sudo ufw allow 53"},
		{"etc/nftables.conf", "policy drop", `in /etc/nftables.conf "meta l4proto { tcp, udp } th dport 53 accept"`},
		{"etc/sysconfig/nftables.conf", "policy drop", `in /etc/sysconfig/nftables.conf "meta l4proto { tcp, udp } th dport 53 accept"`},
	} {
		if text, err := os.ReadFile(filepath.Join(root, f.file)); err == nil && strings.Contains("\n"+string(text), f.says) {
			return f.opens
		}
	}
	return ""
}

// holdersOf returns the processes that listen on port 53, by a folder like /proc, and whether there are others. What
// cannot be read is left out, and so is the server of the package.
func holdersOf(proc string) (all []holder, unseen bool) {
	at := make(map[string]netip.Addr)
	for _, name := range []string{"udp", "udp6", "tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(proc, "net", name))
		for line := range strings.Lines(string(text)) {
			if address, inode, ok := onPort53(line); ok {
				at["socket:["+inode+"]"] = address
			}
		}
	}
	sockets, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	seen := make(map[string]bool)
	for _, file := range sockets {
		target, _ := os.Readlink(file)
		address, ok := at[target]
		if !ok {
			continue
		}
		seen[target] = true
		process := filepath.Dir(filepath.Dir(file))
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		h := holder{name: string(bytes.TrimSpace(name)), unit: unitOf(process), at: address}
		if h.unit != setupUnit && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all, len(seen) < len(at)
}

// onPort53 reads a line of /proc/net/udp, tcp or one of IPv6: a socket that listens has no peer
// (proc_net(5)).
func onPort53(line string) (address netip.Addr, inode string, ok bool) {
	words := strings.Fields(line) // sl, local, remote, st, queues, timer, retransmits, uid, timeout, inode
	if len(words) < 10 || !strings.HasSuffix(words[1], ":0035") || !strings.HasSuffix(words[2], ":0000") {
		return address, "", false
	}
	raw, err := hex.DecodeString(strings.TrimSuffix(words[1], ":0035"))
	if err != nil || len(raw)%4 != 0 {
		return address, "", false
	}
	for i := 0; i < len(raw); i += 4 { // each word is in the order of the machine
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	address, ok = netip.AddrFromSlice(raw)
	return address.Unmap(), words[9], ok
}

// unitOf returns the unit of systemd that a process belongs to, by the end of its control group
// (cgroups(7)).
func unitOf(process string) string {
	text, _ := os.ReadFile(filepath.Join(process, "cgroup"))
	for line := range strings.Lines(string(text)) {
		if name := filepath.Base(strings.TrimSpace(line)); strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}
