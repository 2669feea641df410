// Server serves lists of your own like Google's servers, to try everything without a key. It
// is for those who have the sources: no program of a release has it.
//
//	go run ./test/server -lists testdata/lists.txt
//
// It is the server of the tests, so it tests its client too: see package protocoltest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

const help = `Serves lists of your own like Google's servers, to try everything without a key.

FILE has one line for each listed host:

   LIST EXPRESSION [unconfirmed]

for example "se-4b phishing.example/". With "unconfirmed" the list has the prefix,
but the server answers that the host is not a threat. That happens to harmless
names whose hash begins with the same bytes. The server reads the file again when
it has changed.

The server speaks every protocol of the plugin; Web Risk alone has the list
se-ext-4b. With -protocol it speaks one of them, and answers requests of the others
with status 404. It tests its client too: if a request breaks a rule of the service,
it prints "RULE BROKEN" and the rule.

   go run ./test/server -lists testdata/lists.txt
   go run ./test/server -lists testdata/lists.txt -protocol webrisk -token TOKEN

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], say.MaskedWriter{W: os.Stdout}, say.MaskedWriter{W: os.Stderr})
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(say.MaskedWriter{W: os.Stderr}, "server:", err)
		os.Exit(2)
	}
}

// options are what the command line says.
type options struct {
	lists, listen        string
	protocol, key, token string
	cert, certKey        string
	wait, cache          time.Duration
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	s, err := newListServer(o, &output{w: out, errOut: errOut})
	if err != nil {
		return err
	}
	s.SetCacheDuration(o.cache)
	s.SetMinimumWait("", o.wait)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b", "se-ext-4b"} {
		s.Publish(list, nil) // the plugin expects Google's lists, even if they are empty
	}
	return s.serve(ctx, o)
}

// parse reads the command line. Help goes to out, and the error is flag.ErrHelp.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.lists, "lists", "", "read the lists from `FILE`")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8099", "`ADDRESS` to listen on")
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "minimum wait `DURATION` between updates")
	flags.DurationVar(&o.cache, "cache", time.Minute, "cache `DURATION` of search answers")
	flags.StringVar(&o.protocol, "protocol", everyProtocol, "speak only this `PROTOCOL`: all, "+strings.Join(protocol.DialectNames(), ", "))
	flags.StringVar(&o.key, "key", "", "refuse clients whose API key is not `KEY`")
	flags.StringVar(&o.token, "token", "", "refuse clients whose access token is not `TOKEN`")
	flags.StringVar(&o.cert, "cert", "", "serve HTTPS with the certificate in `FILE`, in PEM")
	flags.StringVar(&o.certKey, "cert-key", "", "the certificate's private key, in `FILE`")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w, see -h", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("the server takes no argument such as %q, see -h", flags.Arg(0))
	case o.lists == "":
		return o, errors.New("-lists FILE is missing, see -h")
	}
	return o, nil
}

// everyProtocol is the value of -protocol of a server that speaks them all.
const everyProtocol = "all"

// newListServer makes the server that the options describe, without lists.
func newListServer(o options, out *output) (*listServer, error) {
	s := &listServer{Server: protocoltest.New(out), out: out, file: o.lists}
	if o.protocol != everyProtocol {
		d, err := protocol.ParseDialect(o.protocol)
		if err != nil {
			return nil, fmt.Errorf("-protocol: %w, or %s", err, everyProtocol)
		}
		s.only = d
	}
	switch {
	case o.key != "" && o.token != "":
		return nil, errors.New("-key and -token are both given: keep one of the two")
	case o.token != "" && s.only != nil && !s.only.Tokens:
		return nil, fmt.Errorf("protocol %s takes no token: use -key", s.only)
	case o.token != "":
		s.SetToken(o.token)
	default:
		s.SetKey(o.key)
	}
	return s, nil
}

// output prints for the server. It is safe for concurrent use.
type output struct {
	mu        sync.Mutex
	w, errOut io.Writer
}

// printf prints to standard output.
func (o *output) printf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.w, format, args...)
}

// complain prints one line to standard error.
func (o *output) complain(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shown := func(r rune) rune { // what a client sent is safe for a terminal
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}
	fmt.Fprintln(o.errOut, strings.Map(shown, fmt.Sprintf(format, args...)))
}

// Errorf implements protocoltest.Reporter. It is called if a client breaks a rule.
func (o *output) Errorf(format string, args ...any) {
	violation := fmt.Sprintf(format, args...)
	excuse := protocoltest.Excuse(violation)
	if excuse != "" {
		excuse = " (or " + excuse + ")"
	}
	o.complain("RULE BROKEN: %s%s", strings.TrimPrefix(violation, "protocoltest: "), excuse)
}

// listServer is a server whose lists follow a file.
type listServer struct {
	*protocoltest.Server
	out  *output
	file string
	only *protocol.Dialect // that the server speaks; nil: all

	mu      sync.Mutex
	read    time.Time   // modification time of the version in use; guarded by mu
	trouble say.Trouble // with the file; guarded by mu
	refused bool        // it has complained of a request of another protocol; guarded by mu
}

// largeFile is the size in bytes from which load announces a file: it takes some seconds.
const largeFile = 1 << 20

// load reads the file if it has changed. It reports whether there is news of it.
func (s *listServer) load() (news bool, _ error) {
	info, err := os.Stat(s.file)
	if err != nil {
		s.read = time.Time{} // read the file when it is back, even with the same time
		return true, err
	}
	if info.ModTime().Equal(s.read) {
		return false, nil
	}
	s.read = info.ModTime()
	if info.Size() >= largeFile {
		s.out.printf("Reading %s (%.1f MB)\n", s.file, float64(info.Size())/1e6)
	}
	f, err := os.Open(s.file)
	if err != nil {
		return true, err
	}
	defer f.Close()
	if err := protocoltest.Load(s.Server, f); err != nil {
		return true, fmt.Errorf("%s: %w", s.file, err)
	}
	return true, nil
}

// reload reads the file if it has changed. It complains once about each problem.
func (s *listServer) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, err := s.load()
	if !news {
		return
	}
	switch began, ended := s.trouble.Note(err); {
	case ended:
		s.out.complain("LIST FILE: %s can be read again and is in force", s.file)
	case began:
		s.out.complain("LIST FILE: %s; the server keeps the previous lists", err)
	}
}

// ServeHTTP implements http.Handler.
func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if asked := dialectOf(r.URL.Path); s.only != nil && asked != nil && asked != s.only {
		s.refuse(w, asked)
		return
	}
	s.reload()
	s.Server.ServeHTTP(w, r)
}

// dialectOf returns the protocol that a path belongs to, or nil.
func dialectOf(path string) *protocol.Dialect {
	version, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if version == "v1" {
		return protocol.DialectWebRisk
	}
	d, err := protocol.ParseDialect(version)
	if err != nil {
		return nil
	}
	return d
}

// refuse answers a request of another protocol. It complains once.
func (s *listServer) refuse(w http.ResponseWriter, asked *protocol.Dialect) {
	why := fmt.Sprintf("this server speaks only protocol %s, and the request is one of protocol %s", s.only, asked)
	s.mu.Lock()
	again := s.refused
	s.refused = true
	s.mu.Unlock()
	if !again {
		s.out.complain("REFUSED: %s; write protocol %s in the Corefile", why, s.only)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":"NOT_FOUND"}}`, http.StatusNotFound, why)
}

// corefile returns a stanza for this server.
func (s *listServer) corefile(address net.Addr) string {
	properties := "endpoint http://" + address.String()
	if s.only != nil && s.only != protocol.DialectV5 {
		properties += "\n\t\tprotocol " + s.only.Name
		if s.only.Paid {
			properties += "\n\t\tbudget 200"
		}
	}
	return "\tsafebrowsing {\n\t\t" + properties + "\n\t}\n"
}

func (s *listServer) serve(ctx context.Context, o options) error {
	if _, err := s.load(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	stanza := s.corefile(l.Addr())
	if o.cert != "" {
		stanza = strings.Replace(stanza, "http:", "https:", 1)
	}
	s.out.printf("Serving the lists of %s. In the Corefile:\n\n%s\n", s.file, stanza)
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if o.cert != "" {
		err = server.ServeTLS(l, o.cert, o.certKey)
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
