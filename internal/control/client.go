package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// Client asks a server over its door. It is safe for concurrent use.
type Client struct {
	Socket string // the path of the door
	http   http.Client
}

func newClient(socket string) *Client {
	return &Client{Socket: socket, http: http.Client{
		Timeout: callTimeout + dialTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
		},
	}}
}

// Report finds a server that has a door in one of the folders, and returns what it says about itself.
func Report(ctx context.Context, folders []string) (r status.Report, err error) {
	client, err := Find(ctx, folders)
	if err == nil {
		_, err = client.Get(ctx, "/status", nil, &r)
	}
	return r, err
}

// Listings asks what is known about prefixes, see block.Process.
func (c *Client) Listings(ctx context.Context, q block.Question) (l block.Listings, err error) {
	_, err = c.Post(ctx, "/listed", q, &l)
	return l, err
}

// Confirm asks to have prefixes confirmed, see block.Process.
func (c *Client) Confirm(ctx context.Context, q block.Question) (d block.Confirmed, err error) {
	_, err = c.Post(ctx, "/confirm", q, &d)
	return d, err
}

// maxAnswer is the most bytes of an answer.
const maxAnswer = 16 << 20

// Get asks, and returns the JSON of the answer, which is also decoded into v.
func (c *Client) Get(ctx context.Context, path string, query url.Values, v any) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://door"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return c.do(r, v)
}

// Post asks for a change, and returns the JSON of the answer, which is also decoded into v.
func (c *Client) Post(ctx context.Context, path string, body, v any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://door"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return c.do(r, v)
}

func (c *Client) do(r *http.Request, v any) ([]byte, error) {
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the server at %s: %w", c.Socket, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("asking the server at %s: %w", c.Socket, err)
	}
	if response.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(text, &f) != nil || f.Error == "" {
			f.Error = "the server at " + c.Socket + " answers " + response.Status
		}
		return nil, &RefusedError{f.Error, response.StatusCode}
	}
	return text, json.Unmarshal(text, v)
}

// RefusedError is what a server answers instead of doing something.
type RefusedError struct {
	Text string
	Code int // of HTTP
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Text }

// waitFor is how long a program waits for a server in all.
const waitFor = callTimeout + 2*time.Second
