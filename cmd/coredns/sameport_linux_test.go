package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// share listens on an address as CoreDNS does, and returns the socket's entry in /proc/self/fd.
func share(t *testing.T, address netip.AddrPort) (at netip.AddrPort, entry string) {
	t.Helper()
	domain := unix.AF_INET6
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
	if address.Addr().Is4() {
		domain, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		withoutIPv6(t, err)
	}
	file := os.NewFile(uintptr(fd), "") // owns fd: it would be closed as soon as nothing refers to file
	t.Cleanup(func() { file.Close() })
	testkit.Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	if err := unix.Bind(fd, to); err != nil {
		withoutIPv6(t, err)
	}
	conn, err := net.FilePacketConn(file) // a copy
	testkit.Must(t, err)
	defer conn.Close()
	at = netip.MustParseAddrPort(conn.LocalAddr().String())
	return at, fmt.Sprintf("/proc/self/fd/%d", fd)
}

// withoutIPv6 skips a test on a machine without IPv6. Any other error fails it.
func withoutIPv6(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Skipf("This test needs IPv6: %v", err)
	}
	t.Fatal(err)
}

// process returns the folder of a process, as in /proc, that has some of our sockets.
func process(t *testing.T, entries ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"fd", "net"} {
		testkit.Must(t, os.Mkdir(filepath.Join(folder, name), 0o700))
	}
	for i, entry := range entries {
		target, err := os.Readlink(entry)
		testkit.Must(t, err)
		testkit.Must(t, os.Symlink(target, filepath.Join(folder, "fd", fmt.Sprint(i))))
	}
	for _, name := range []string{"udp", "udp6"} {
		text, err := os.ReadFile("/proc/self/net/" + name)
		if errors.Is(err, fs.ErrNotExist) && name == "udp6" { // a kernel without IPv6
			continue
		}
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "net", name), text, 0o600))
	}
	return folder
}

func TestTwoProcessesOnOnePortAreSeenByBoth(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			at, first := share(t, netip.MustParseAddrPort(address))
			_, second := share(t, at)
			want := at
			if at.Addr().IsUnspecified() {
				want = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
			}
			for _, entry := range []string{first, second} {
				if got := sharedPorts(process(t, entry)); len(got) != 1 || !got[want] {
					t.Errorf("Expected the process with %s to see another one on %s, got %v", entry, want, got)
				}
			}
			if got := sharedPorts(process(t, first, second)); len(got) != 0 {
				t.Errorf("A process with both sockets sees another one: %v", got)
			}
			if got := sharedPorts(process(t)); len(got) != 0 {
				t.Errorf("A process without a socket sees another one: %v", got)
			}
		})
	}
}

// Who starts a second server looks at the end of its log, and nowhere later.
func TestTheLogOfAStartNamesAPortThatIsTaken(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // CoreDNS needs both
	testkit.Must(t, err)
	at, _ := share(t, netip.MustParseAddrPort(tcp.Addr().String()))
	tcp.Close()
	warning := fmt.Sprintf("[WARNING] Another process listens on %s, too: each of the two gets a part of the queries. Stop one of them", at)
	if log := logOfStart(t, at.Port()); strings.Count(log, warning) != 1 {
		t.Errorf("Expected one line with %q, got\n%s", warning, log)
	}
}

func TestAProcessOnAnotherAddressIsNoneOnTheSamePort(t *testing.T) {
	at, first := share(t, netip.MustParseAddrPort("127.0.0.1:0"))
	share(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port()))
	if got := sharedPorts(process(t, first)); len(got) != 0 {
		t.Errorf("Expected none, got %v", got)
	}
}
