// Command bench measures what the plugin costs in the real server: it builds
// cmd/coredns, starts it with and without the plugin in turn, drives it over UDP
// and prints ratios. README.md says what is measured and how to read it.
//
//	core 0: CoreDNS, stock and with the plugin, each from a Corefile of its own
//	core 1: dnsperf or the client of this program, the upstream of forward, and
//	        the Safe Browsing server that hands out the lists
package main
