package test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The Corefile of the page for providers, with addresses of this machine and an own list: who asks
// is what the PROXY protocol says.
func TestALineIsProtectedByAValueOfThePROXYProtocol(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	corefiles := blocks(sectionOf(t, "docs/provider.md", "Who is protected"), "corefile")
	if len(corefiles) != 1 {
		t.Fatalf("Expected a Corefile, got %q", corefiles)
	}
	address := testkit.FreeAddress(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(address)
	service, _, _ := strings.Cut(corefiles[0][strings.Index(corefiles[0], "    safebrowsing {\n"):], "    cache\n")
	corefile := strings.NewReplacer(
		service, "    safebrowsing {\n        "+blockList(t, "own.example")+"\n    }\n",
		"bind 192.0.2.20", "bind 127.0.0.1", "192.0.2.10/32", "127.0.0.0/8", "9.9.9.9", startUpstream(t, 0), ". {\n", ".:"+port+" {\n",
	).Replace(corefiles[0])
	instance, err := caddy.Start(input(corefile))
	testkit.Must(t, err)
	defer func() { _ = instance.Stop() }()
	for what, line := range map[string]struct {
		values  string
		blocked bool
	}{
		"protected":              {"\xe0\x00\x01\x01", true},
		"protected, two values":  {"\xea\x00\x02ab\xe0\x00\x01\x01", true},
		"not protected":          {"\xe0\x00\x01\x00", false},
		"without a value":        {"", false},
		"protected, asked again": {"\xe0\x00\x01\x01", true}, // no cache mixes them
	} {
		if m := askBehindProxy(t, address, line.values, "own.example."); isBlocked(m) != line.blocked {
			t.Errorf("%s: Expected blocked %t, got\n%v", what, line.blocked, m)
		}
		if m := askBehindProxy(t, address, line.values, "fine.example."); isBlocked(m) || len(m.Answer) != 1 {
			t.Errorf("%s: Expected another name to pass, got\n%v", what, m)
		}
	}
}

// askBehindProxy asks over UDP as a proxy does, for a line with these values.
func askBehindProxy(t *testing.T, address, values, name string) *dns.Msg {
	t.Helper()
	conn, err := net.Dial("udp", address)
	testkit.Must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	query, err := new(dns.Msg).SetQuestion(name, dns.TypeA).SetEdns0(1232, false).Pack()
	testkit.Must(t, err)
	header := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x12") // version 2, IPv4 over UDP
	header = binary.BigEndian.AppendUint16(header, uint16(12+len(values)))
	header = append(header, 198, 51, 100, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 53)
	if _, err := conn.Write(append(append(header, values...), query...)); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 4096)
	n, err := conn.Read(raw)
	m := new(dns.Msg)
	if err == nil {
		err = m.Unpack(raw[:n])
	}
	testkit.Must(t, err)
	return m
}
