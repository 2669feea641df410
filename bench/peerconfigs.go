package main

import (
	"fmt"
	"strings"
)

// peer is a server that blocks names of a list, and how it is made to.
type peer struct {
	name string
	what string // for the table
	// entry is a line of its list, %s the name; header comes before all.
	header, entry string
	// listAt is where the list has to be in its folder; "": where the configuration says.
	listAt string
	// config is its configuration, args its arguments. CONFIG, DIR, LIST, PORT and WEB in them
	// are the files, its folder, and two ports of its own; UPSTREAM is the port of the name server
	// that it forwards to. Its lines of caching are cached, or forwarded if it must not cache.
	config, cached, forwarded string
	args                      []string
}

// ours is the peer that needs no -peer.
const ours = "safebrowsing"

// peers are configured alike: NXDOMAIN for names of the list, one thread, no log of queries, no
// statistics, no limit of clients, and a cache that holds all names, or none.
func peers() []peer {
	return []peer{
		{name: ours, what: "this plugin, `block FILE`", entry: "%s",
			config: ".:PORT {\n\tbind 127.0.0.1\n\tsafebrowsing {\n\t\tblock LIST\n\t}\n\tCACHE\n\tforward . 127.0.0.1:UPSTREAM\n}\n",
			cached: "cache {\n\t\tsuccess 262144\n\t}", args: []string{"-conf", "CONFIG"}},
		{name: "adguardhome", what: "AdGuard Home, a list of hosts", entry: "0.0.0.0 %s", // of its formats the fastest
			listAt: "data/filters/1.txt",
			config: adGuardHome, cached: "cache_enabled: true\n  cache_size: 268435456", forwarded: "cache_enabled: false\n  cache_size: 0",
			args: []string{"-c", "CONFIG", "-w", "DIR", "--no-check-update", "--no-permcheck"}},
		{name: "blocky", what: "blocky", entry: "%s",
			config: blocky, cached: "caching: {prefetching: false}", forwarded: "caching: {maxTime: -1s, cacheTimeNegative: -1s}",
			args: []string{"--config", "CONFIG", "serve"}},
		{name: "unbound", what: "Unbound, RPZ", header: "$TTL 300\n@ SOA localhost. root.localhost. 1 3600 900 2592000 300\n@ NS localhost.\n", entry: "%s CNAME .",
			config: unbound, cached: "msg-cache-size: 256m\n  rrset-cache-size: 256m", forwarded: "cache-max-ttl: 0",
			args: []string{"-d", "-c", "CONFIG"}},
		{name: "dnsdist", what: "dnsdist, SuffixMatchNode", entry: "%s",
			config: dnsdist, cached: `getPool(""):setCache(newPacketCache(262144))`,
			args: []string{"--supervised", "--disable-syslog", "-C", "CONFIG"}},
	}
}

const adGuardHome = `schema_version: 34
http:
  address: 127.0.0.1:WEB
users: []
dns:
  bind_hosts: [127.0.0.1]
  port: PORT
  upstream_dns: ["127.0.0.1:UPSTREAM"]
  bootstrap_dns: ["127.0.0.1:UPSTREAM"]
  ratelimit: 0
  hostsfile_enabled: false
  serve_plain_dns: true
  CACHE
querylog:
  enabled: false
  file_enabled: false
statistics:
  enabled: false
filters:
  - enabled: true
    url: LIST
    name: bench
    id: 1
filtering:
  filtering_enabled: true
  protection_enabled: true
  blocking_mode: nxdomain
  filters_update_interval: 0
  safe_fs_patterns: ["LIST"]
`

const blocky = `upstreams:
  init: {strategy: fast}
  groups:
    default: ["tcp+udp:127.0.0.1:UPSTREAM"]
blocking:
  denylists:
    bench: ["LIST"]
  clientGroupsBlock:
    default: [bench]
  blockType: nxDomain
  loading:
    refreshPeriod: 0s
    strategy: blocking
CACHE
queryLog: {type: none}
log: {level: warn}
ports: {dns: "127.0.0.1:PORT"}
`

const unbound = `server:
  interface: 127.0.0.1
  port: PORT
  num-threads: 1
  username: ""
  chroot: ""
  directory: "DIR"
  pidfile: ""
  use-syslog: no
  do-not-query-localhost: no
  module-config: "respip iterator"
  CACHE
rpz:
  name: "rpz.bench"
  zonefile: "LIST"
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@UPSTREAM
`

const dnsdist = `setLocal("127.0.0.1:PORT")
setSecurityPollSuffix("")
newServer("127.0.0.1:UPSTREAM")
listed = newSuffixMatchNode()
for name in io.lines("LIST") do listed:add(newDNSName(name)) end
addAction(SuffixMatchNodeRule(listed, true), RCodeAction(DNSRCode.NXDOMAIN))
CACHE
`

// place is where a peer runs.
type place struct {
	dir, config, list   string
	port, web, upstream int
	cached              bool
}

// fill puts a place into a configuration or an argument of the peer.
func (p peer) fill(text string, at place) string {
	cache := p.forwarded
	if at.cached {
		cache = p.cached
	}
	return strings.NewReplacer("CONFIG", at.config, "DIR", at.dir, "LIST", at.list, "CACHE", cache,
		"PORT", fmt.Sprint(at.port), "WEB", fmt.Sprint(at.web), "UPSTREAM", fmt.Sprint(at.upstream)).Replace(text)
}

// peerPrograms are the programs of peers by name, a flag.Value of NAME=PATH.
type peerPrograms map[string]string

// String implements flag.Value.
func (p peerPrograms) String() string { return fmt.Sprint(map[string]string(p)) }

// Set implements flag.Value.
func (p peerPrograms) Set(value string) error {
	name, path, _ := strings.Cut(value, "=")
	var known []string
	for _, one := range peers()[1:] {
		known = append(known, one.name)
		if one.name == name && path != "" {
			p[name] = path
			return nil
		}
	}
	return fmt.Errorf("want NAME=PATH, where NAME is one of %s", strings.Join(known, ", "))
}
