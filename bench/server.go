package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/procfs"
)

// spec is a server to start.
type spec struct {
	name    string
	program string   // path of the CoreDNS; "": ours
	folder  *folder  // of the lists; nil: without the plugin
	tail    string   // the plugins that answer
	cores   string   // for taskset
	env     []string // variables in addition to the bench's
	box     *box     // nil: as much memory as there is
}

// The plugins that answer. Those of forwarding hold %s for the upstream.
const (
	template   = "template IN A {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.1\"\n\t}"
	forwarding = "cache\n\tforward . %s"
)

// corefile returns the Corefile. limit is off since all queries come from one
// client, at a rate that no client has.
func (s spec) corefile(dnsPort, readyPort int) string {
	plugin := ""
	if s.folder != nil {
		plugin = fmt.Sprintf("safebrowsing {\n\t\tendpoint %s\n\t\tdb %s\n\t\tlists %s\n\t\tlimit off\n\t}\n\t",
			s.folder.endpoint, s.folder.dir, strings.Join(listNames(), " "))
	}
	return fmt.Sprintf(".:%d {\n\tbind 127.0.0.1\n\tready 127.0.0.1:%d\n\t%s%s\n}\n", dnsPort, readyPort, plugin, s.tail)
}

// server is a CoreDNS that runs.
type server struct {
	spec
	port    int
	proc    procfs.Proc
	startup time.Duration // from the start until lists are in force and queries are answered
	cmd     *exec.Cmd
	dir     string
	ended   chan struct{} // closed when the process has ended
}

// start starts a server and waits until it is ready and answers.
func (b *bench) start(ctx context.Context, s spec) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(conf, []byte(s.corefile(ports[0], ports[1])), 0o600); err != nil {
		return nil, err
	}
	v := &server{spec: s, port: ports[0], dir: dir}
	v.cmd = onCores(ctx, s.cores, cmp.Or(s.program, b.coredns), "-conf", conf)
	v.cmd.Env = append(environment(), s.env...)
	if s.box != nil {
		v.cmd = s.box.command(conf)
	}
	begun := time.Now()
	if err := v.launch(); err != nil {
		return nil, err
	}
	if err := v.await(ctx, ports[1]); err != nil {
		v.stop()
		return nil, fmt.Errorf("starting CoreDNS %s: %w\n%s", s.name, err, v.output())
	}
	v.startup = time.Since(begun)
	return v, nil
}

// launch starts the command of a server in the server's folder.
func (v *server) launch() error {
	output, err := os.Create(filepath.Join(v.dir, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	v.cmd.Dir, v.cmd.Stdout, v.cmd.Stderr = v.dir, output, output
	if err := v.cmd.Start(); err != nil {
		return err
	}
	v.ended = make(chan struct{})
	go func() { v.cmd.Wait(); close(v.ended) }()
	if v.proc, err = procfs.NewProc(v.cmd.Process.Pid); err != nil { // taskset becomes the server
		v.stop()
	}
	return err
}

// onCores returns the command of a program that may use these cores, "" for all, until ctx ends.
func onCores(ctx context.Context, cores, program string, args ...string) *exec.Cmd {
	if cores == "" {
		return exec.CommandContext(ctx, program, args...)
	}
	return exec.CommandContext(ctx, "taskset", append([]string{"-c", cores, program}, args...)...)
}

// environment is the bench's but for what would change a server.
func environment() (env []string) {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "SAFEBROWSING_") && !strings.HasPrefix(name, "GO") {
			env = append(env, e)
		}
	}
	return env
}

// Ports that servers get. Linux gives those from 32768 on to clients (ip_local_port_range), which
// the bench has many of while a server loads its list.
const firstPort, lastPort = 10000, 32767

// freePorts returns ports that are free for TCP and UDP.
func freePorts(n int) (ports []int, err error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer l.Close()
		p, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		defer p.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}

const (
	startLimit = 30 * time.Second
	startPoll  = time.Millisecond
)

// await asks /ready and then DNS until both answer.
func (v *server) await(ctx context.Context, readyPort int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	url := fmt.Sprintf("http://127.0.0.1:%d/ready", readyPort)
	for !ready(client, url) || !v.answers() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.ended:
			return errors.New("it has ended")
		case <-time.After(startPoll):
		}
	}
	return nil
}

func ready(client *http.Client, url string) bool {
	r, err := client.Get(url)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func (v *server) answers() bool {
	client := &dns.Client{Timeout: 200 * time.Millisecond}
	r, _, err := client.Exchange(new(dns.Msg).SetQuestion("www.example.net.", dns.TypeA), v.address())
	return err == nil && r.Rcode == dns.RcodeSuccess
}

func (v *server) address() string { return fmt.Sprintf("127.0.0.1:%d", v.port) }

func (v *server) output() string {
	raw, _ := os.ReadFile(filepath.Join(v.dir, "output"))
	return string(raw)
}

// stop ends the server and waits for its end.
func (v *server) stop() {
	v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.ended:
	case <-time.After(5 * time.Second):
		v.cmd.Process.Kill()
		<-v.ended
	}
}

// startAll starts servers, all or none.
func (b *bench) startAll(ctx context.Context, specs ...spec) (all []*server, stop func(), err error) {
	stop = func() {
		for _, v := range all {
			v.stop()
		}
	}
	for _, s := range specs {
		v, err := b.start(ctx, s)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all = append(all, v)
	}
	return all, stop, nil
}

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
