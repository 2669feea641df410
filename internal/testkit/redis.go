package testkit

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Redis is one redis-server. Its methods are for one goroutine.
type Redis struct {
	Addr     string // "host:port"
	Password string // of Do and Try; "": none

	t       testing.TB
	program string
	args    []string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	logged  *Output
}

// redisServer returns the path of redis-server, or of $SAFEBROWSING_REDIS_SERVER.
func redisServer(t testing.TB) string {
	t.Helper()
	return Program(t, cmp.Or(os.Getenv("SAFEBROWSING_REDIS_SERVER"), "redis-server"))
}

// StartRedis starts a server that keeps everything in memory, with more options such as
// "--requirepass", "secret". It ends with the test.
func StartRedis(t testing.TB, options ...string) *Redis {
	t.Helper()
	return StartRedisAt(t, FreeAddr(t), options...)
}

// StartRedisAt is StartRedis at an address that is free.
func StartRedisAt(t testing.TB, addr string, options ...string) *Redis {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--repl-diskless-sync-delay", "0"}, options...)
	return startRedis(t, addr, args)
}

// StartRedisTLS starts a server that speaks TLS only, and returns the file of the CA that has
// signed its certificate. Do does not work with it.
func StartRedisTLS(t testing.TB, options ...string) (s *Redis, caFile string) {
	t.Helper()
	dir := t.TempDir()
	caFile, key := Certificate(t, dir)
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	args := append([]string{"--bind", "127.0.0.1", "--port", "0", "--tls-port", port, "--save", "", "--dir", dir,
		"--tls-cert-file", caFile, "--tls-key-file", key, "--tls-auth-clients", "no"}, options...)
	return startRedis(t, addr, args), caFile
}

// startRedis starts a server and waits until it listens.
func startRedis(t testing.TB, addr string, args []string) *Redis {
	t.Helper()
	s := &Redis{Addr: addr, t: t, program: redisServer(t), args: args}
	s.Restart()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.state())
		}
		s.Kill()
	})
	return s
}

// Restart starts the server again, empty, after Kill. It waits until it listens.
func (s *Redis) Restart() {
	s.t.Helper()
	s.cmd, s.ended, s.logged = exec.Command(s.program, s.args...), make(chan struct{}), new(Output)
	s.cmd.Stdout, s.cmd.SysProcAttr = s.logged, dieWithTest()
	started := make(chan error)
	go func(cmd *exec.Cmd, ended chan struct{}) { // ends with the process, which Kill ends
		runtime.LockOSThread() // the process dies with the thread that started it: see prctl(2), PR_SET_PDEATHSIG
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
		close(ended)
	}(s.cmd, s.ended)
	Must(s.t, <-started)
	// That something listens at the address is not enough: it may be another process.
	for deadline := time.Now().Add(20 * time.Second); !s.ready(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			s.t.Fatal(s.state())
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("It does not listen: %s", s.state())
		}
	}
}

// ready reports whether the process has written that it listens. Sentinels write only their
// identity, which they do before they listen.
func (s *Redis) ready() bool {
	text := s.logged.String()
	if !strings.Contains(text, "Ready to accept connections") && !strings.Contains(text, "Sentinel ID is") {
		return false
	}
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// URL returns the URL of the server.
func (s *Redis) URL() string { return "redis://" + s.Addr }

// Kill ends the process at once. It may be called more than once.
func (s *Redis) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
}

// Stop makes the process hang until Continue: connections stay, and nothing is answered.
func (s *Redis) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Redis) Continue() { s.signal(syscall.SIGCONT) }

func (s *Redis) signal(signal syscall.Signal) {
	s.t.Helper()
	Must(s.t, s.cmd.Process.Signal(signal))
}

// Do runs one command on a connection of its own and returns the answer as Redis writes
// it, such as "+OK", ":1", "$3 abc" and "-ERR ...".
func (s *Redis) Do(words ...string) string {
	s.t.Helper()
	answer, err := s.Try(words...)
	if err != nil {
		s.t.Fatalf("%v: %s", err, s.state())
	}
	return answer
}

// state says what has become of the process, and what it has written.
func (s *Redis) state() string {
	select {
	case <-s.ended:
		return fmt.Sprintf("%s has ended, %s: %s", s.program, s.cmd.ProcessState, s.logged)
	default:
		return fmt.Sprintf("%s runs: %s", s.program, s.logged)
	}
}

// Try is Do for a server that may cut the connection, as a replica does that becomes a master.
func (s *Redis) Try(words ...string) (string, error) {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var text strings.Builder
	if s.Password != "" {
		fmt.Fprintf(&text, "AUTH %s\r\n", s.Password)
	}
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(w), w)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(text.String())); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	if s.Password != "" {
		if answer, err := readAnswer(r); err != nil || answer != "+OK" {
			return answer, err
		}
	}
	return readAnswer(r)
}

// readAnswer reads one answer; the elements of an array are separated by spaces.
func readAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	var n int
	switch _, err := fmt.Sscanf(line[1:], "%d", &n); {
	case err != nil || n < 0 || !strings.ContainsAny(line[:1], "$*"):
		return line, nil
	case line[0] == '$':
		text := make([]byte, n+2)
		for got := 0; got < len(text); {
			m, err := r.Read(text[got:])
			if err != nil {
				return "", err
			}
			got += m
		}
		return line + " " + string(text[:n]), nil
	}
	words := []string{line}
	for range n {
		word, err := readAnswer(r)
		if err != nil {
			return "", err
		}
		words = append(words, word)
	}
	return strings.Join(words, " "), nil
}

// StartSentinels starts n Sentinels that watch over a master under the name "main", with a
// quorum for a failover. More lines of their configuration may follow.
func StartSentinels(t testing.TB, master *Redis, n int, more ...string) (all []*Redis) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	for range n {
		addr := FreeAddr(t)
		_, own, _ := net.SplitHostPort(addr)
		dir := t.TempDir()
		file := Write(t, dir, "sentinel.conf", fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor main %s %s %d\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n%s\n",
			own, dir, host, port, n/2+1, strings.Join(more, "\n")))
		all = append(all, startRedis(t, addr, []string{file, "--sentinel"}))
	}
	return all
}

// StartCluster starts a Redis Cluster of three masters.
func StartCluster(t testing.TB, options ...string) []*Redis {
	t.Helper()
	const nodes, slots = 3, 16384
	var all []*Redis
	for i := range nodes {
		// Redis listens for the other nodes at its port + 10000 unless told otherwise.
		_, bus, _ := net.SplitHostPort(FreeAddr(t))
		s := StartRedis(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000"}, options...)...)
		if got := s.Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/nodes), fmt.Sprint((i+1)*slots/nodes-1)); got != "+OK" {
			t.Fatalf("Expected slots for node %d, got %q", i, got)
		}
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		for _, other := range all {
			host, port, _ := net.SplitHostPort(other.Addr)
			if got := s.Do("CLUSTER", "MEET", host, port, other.bus()); got != "+OK" {
				t.Fatalf("Expected that the nodes meet, got %q", got)
			}
		}
		all = append(all, s)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ready := 0
		for _, s := range all {
			info := s.Do("CLUSTER", "INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				ready++
			}
		}
		if ready == nodes {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("The cluster does not come up: %s", all[0].Do("CLUSTER", "INFO"))
		}
	}
}

// bus returns the port for other nodes of a cluster.
func (s *Redis) bus() string {
	for i, arg := range s.args {
		if arg == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}
