package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

func testserver() *cli.Command {
	return &cli.Command{
		Name:  "testserver",
		Usage: "serve lists of your own like the Safe Browsing server, to try everything without a key",
		Description: `FILE has one line for each listed host:

   LIST EXPRESSION [unconfirmed]

for example "se-4b phishing.example/". With "unconfirmed" the list has the prefix,
but the server answers that the host is not a threat. That happens to harmless
names whose hash begins with the same bytes. The server reads the file again when
it has changed.

The server speaks v5, v4 and Web Risk, which alone has the list se-ext-4b. It tests
its client too: if a request breaks a rule of the service, it prints "RULE BROKEN"
and the rule.

   safebrowsing testserver -lists lists.txt
   Corefile: safebrowsing { endpoint http://127.0.0.1:8099 }`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "lists", Usage: "read the lists from `FILE`", Required: true},
			&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` to listen on", Value: "127.0.0.1:8099"},
			&cli.DurationFlag{Name: "wait", Usage: "minimum wait `DURATION` between updates", Value: 30 * time.Second},
			&cli.DurationFlag{Name: "cache", Usage: "cache `DURATION` of search answers", Value: time.Minute},
			&cli.StringFlag{Name: "key", Usage: "refuse clients whose API key is not `KEY`"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("testserver takes no argument such as %q, see -h", c.Args().First())
			}
			out := &output{w: c.Root().Writer, errOut: c.Root().ErrWriter}
			s := &listServer{Server: protocoltest.New(out), out: out, file: c.String("lists")}
			s.SetCacheDuration(c.Duration("cache"))
			s.SetKey(c.String("key"))
			s.SetMinimumWait("", c.Duration("wait"))
			for _, list := range []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b", "se-ext-4b"} {
				s.Publish(list, nil) // the plugin expects Google's lists, even if they are empty
			}
			return s.serve(ctx, c.String("listen"))
		},
	}
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
	fmt.Fprintln(o.errOut, shown(fmt.Sprintf(format, args...)))
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

	mu      sync.Mutex
	read    time.Time // modification time of the version in use; guarded by mu
	trouble string    // the last complaint about the file; "": none; guarded by mu
}

// largeFile is the size in bytes from which load announces a file: it takes some seconds.
const largeFile = 1 << 20

// load reads the file.
func (s *listServer) load(info os.FileInfo) error {
	if info.Size() >= largeFile {
		s.out.printf("Reading %s (%s)\n", s.file, megabytes(uint64(info.Size())))
	}
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := protocoltest.Load(s.Server, f); err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	return nil
}

// reload reads the file if it has changed. It complains once about each problem.
func (s *listServer) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.file)
	if err == nil {
		if info.ModTime().Equal(s.read) {
			return
		}
		s.read = info.ModTime()
		err = s.load(info)
	} else {
		s.read = time.Time{} // read the file when it is back, even with the same time
	}
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	switch {
	case trouble == s.trouble:
	case trouble == "":
		s.out.complain("LIST FILE: %s can be read again and is in force", s.file)
	default:
		s.out.complain("LIST FILE: %s; the server keeps the previous lists", trouble)
	}
	s.trouble = trouble
}

// ServeHTTP implements http.Handler.
func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.reload()
	s.Server.ServeHTTP(w, r)
}

func (s *listServer) serve(ctx context.Context, address string) error {
	info, err := os.Stat(s.file)
	if err == nil {
		s.read = info.ModTime()
		err = s.load(info)
	}
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.out.printf("Serving the lists of %s. In the Corefile:\n\n\tsafebrowsing {\n\t\tendpoint http://%s\n\t}\n\n", s.file, l.Addr())
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
