package main

import (
	"net"

	"github.com/miekg/dns"
)

// nameServer is a name server that has the same address for every name.
type nameServer struct {
	server  *dns.Server
	address string
	port    int
}

func newNameServer() (*nameServer, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &nameServer{address: conn.LocalAddr().String(), port: conn.LocalAddr().(*net.UDPAddr).Port}
	u.server = &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(static)}
	go u.server.ActivateAndServe() // ends with close
	return u, nil
}

func (u *nameServer) close() { u.server.Shutdown() }

func static(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	m.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300},
		A:   net.IPv4(192, 0, 2, 1),
	}}
	w.WriteMsg(m)
}
