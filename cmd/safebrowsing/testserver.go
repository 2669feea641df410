package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

func testserver() *cli.Command {
	return &cli.Command{
		Name:  "testserver",
		Usage: "serve lists of your own like the Safe Browsing server, to try everything without a key",
		Description: `FILE has one line for each host that is listed:

   LIST EXPRESSION [unconfirmed]

for example "se-4b phishing.example/". With "unconfirmed" a prefix is listed, but
the server then says that the host is no threat, as it happens to harmless names
whose hash begins alike. The file is read again when it changes. What a client
does against the request-frequency rules is printed, so that the server also
tests clients.

   safebrowsing testserver -lists lists.txt
   Corefile: safebrowsing { endpoint http://127.0.0.1:8099 }`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "lists", Usage: "lists are read from `FILE`", Required: true},
			&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` to listen on", Value: "127.0.0.1:8099"},
			&cli.DurationFlag{Name: "wait", Usage: "minimum wait `DURATION` between updates", Value: 30 * time.Second},
			&cli.DurationFlag{Name: "cache", Usage: "cache `DURATION` of search answers", Value: time.Minute},
			&cli.StringFlag{Name: "key", Usage: "refuse clients whose API key is not `KEY`"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("testserver takes no argument such as %q, see -h", c.Args().First())
			}
			complain := printer{c.Root().ErrWriter}
			s := &listServer{Server: protocoltest.New(complain), complain: complain, file: c.String("lists")}
			s.SetCacheDuration(c.Duration("cache"))
			s.SetKey(c.String("key"))
			s.SetMinimumWait("", c.Duration("wait"))
			for _, list := range []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"} {
				s.Publish(list, nil) // Google's lists exist, if only empty
			}
			return s.serve(ctx, c.String("listen"), c.Root().Writer)
		},
	}
}

// printer prints what clients do against the rules.
type printer struct{ w io.Writer }

// Errorf implements protocoltest.Reporter.
func (p printer) Errorf(format string, args ...any) {
	fmt.Fprintf(p.w, "RULE BROKEN: "+format+"\n", args...)
}

// listServer is a server whose lists follow a file.
type listServer struct {
	*protocoltest.Server
	complain printer
	file     string

	mu   sync.Mutex
	read time.Time // modification time of the file when it was read; guarded by mu
}

// reload reads the file if it has changed.
func (s *listServer) reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.file)
	if err != nil || info.ModTime().Equal(s.read) {
		return err
	}
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := protocoltest.Load(s.Server, f); err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	s.read = info.ModTime()
	return nil
}

// ServeHTTP implements http.Handler.
func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.reload(); err != nil {
		s.complain.Errorf("the lists stay as they were: %v", err)
	}
	s.Server.ServeHTTP(w, r)
}

func (s *listServer) serve(ctx context.Context, address string, out io.Writer) error {
	if err := s.reload(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Serving the lists of %s. In the Corefile:\n\n\tsafebrowsing {\n\t\tendpoint http://%s\n\t}\n\n", s.file, l.Addr())
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
