package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/reuseport"

	"golang.org/x/sys/unix"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// share listens on an address as CoreDNS does, and returns an entry of the socket in /proc/self/fd.
func share(t *testing.T, address netip.AddrPort) (at netip.AddrPort, entry string) {
	t.Helper()
	conn, err := reuseport.ListenPacket("udp", address.String())
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	file, err := conn.(*net.UDPConn).File() // a copy
	testkit.Must(t, err)
	t.Cleanup(func() { file.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String()), fmt.Sprintf("/proc/self/fd/%d", file.Fd())
}

// freePort returns an address of a host that nothing listens on, and skips the test on a machine without
// IPv6. Port 0 may be one that is shared already: the kernel gives it to all sockets of a user with SO_REUSEPORT.
func freePort(t *testing.T, host string) netip.AddrPort {
	t.Helper()
	probe, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Skipf("This test needs IPv6: %v", err)
	}
	testkit.Must(t, err)
	probe.Close()
	return netip.MustParseAddrPort(testkit.FreeAddress(t, host))
}

// process returns the folder of a process, as in /proc, that has some of our sockets.
func process(t *testing.T, entries ...string) string {
	t.Helper()
	folder := t.TempDir()
	testkit.Must(t, errors.Join(os.Mkdir(filepath.Join(folder, "fd"), 0o700), os.Symlink("/proc/self/net", filepath.Join(folder, "net"))))
	for i, entry := range entries {
		target, err := os.Readlink(entry)
		testkit.Must(t, err)
		testkit.Must(t, os.Symlink(target, filepath.Join(folder, "fd", fmt.Sprint(i))))
	}
	return folder
}

func TestTwoProcessesOnOnePortAreSeenByBoth(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "::"} {
		t.Run(host, func(t *testing.T) {
			at, first := share(t, freePort(t, host))
			_, second := share(t, at)
			want := at
			if at.Addr().IsUnspecified() {
				want = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
			}
			for _, entry := range []string{first, second} {
				testkit.Equal(t, "seen by who has one", sharedPorts(process(t, entry)), map[netip.AddrPort]bool{want: true})
			}
			testkit.Equal(t, "seen by who has both", len(sharedPorts(process(t, first, second))), 0)
			testkit.Equal(t, "seen by who has none", len(sharedPorts(process(t))), 0)
		})
	}
}

// Who starts a second server looks at the end of its log, and nowhere later.
func TestTheLogOfAStartNamesAPortThatIsTaken(t *testing.T) {
	at, _ := share(t, freePort(t, "127.0.0.1"))
	warning := fmt.Sprintf("[WARNING] Another process listens on %s, too: each of the two gets a part of the queries. Stop one of them", at)
	testkit.Equal(t, warning, strings.Count(logOfStart(t, at.Port()), warning), 1)
}

func TestAProcessOnAnotherAddressIsNoneOnTheSamePort(t *testing.T) {
	at, first := share(t, freePort(t, "127.0.0.1"))
	share(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port()))
	testkit.Equal(t, "seen", len(sharedPorts(process(t, first))), 0)
}
