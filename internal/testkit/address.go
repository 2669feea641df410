package testkit

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports that FreeAddress may return. Linux gives the ports from 32768 on to outgoing
// connections (ip_local_port_range), which other tests make all the time.
const firstPort, lastPort = 10000, 32767

// given has the addresses that this process has been given.
var given sync.Map // of string to nothing

// claims has the sockets of claim: one that nothing refers to would be closed.
var claims sync.Map // of string to net.Listener

// FreeAddress returns an address of a host that nothing listens on, for TCP and UDP. It does
// so once for each address, on Linux also if other test processes ask.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	for range 1000 {
		address := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		if _, known := given.LoadOrStore(address, nil); !known && claim(address) && free(address) {
			return address
		}
	}
	t.Fatalf("no port of %s is free", host)
	return ""
}

// claim keeps an address from other test processes until this one ends. It listens on an abstract
// socket of its name, see unix(7): packages are tested side by side, and a program under test
// binds its port only a while after the address was returned. It comes before free, whose look at
// an address is a listener, too.
func claim(address string) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	l, err := net.Listen("unix", "@safebrowsing-test-"+address)
	if err != nil {
		return false
	}
	claims.Store(address, l)
	return true
}

// free reports whether nothing listens on an address. Its own sockets must be closed then: a program that was being
// started meanwhile would have them until it runs, so none is.
func free(address string) bool {
	if runtime.GOOS == "linux" { // elsewhere net takes the lock itself
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	u.Close()
	return true
}

// FreePort returns the port of a FreeAddress of 127.0.0.1.
func FreePort(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(FreeAddr(t))
	return port
}

// FreeAddr returns a FreeAddress of 127.0.0.1.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return FreeAddress(t, "127.0.0.1")
}

// MortalServer returns a server that has not started. Once it has been closed nobody listens at its
// address: the system would give the port to other tests.
func MortalServer(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	var err error
	s.Listener, err = net.Listen("tcp", FreeAddr(t))
	Must(t, err)
	t.Cleanup(s.Close)
	return s
}
