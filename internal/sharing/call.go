package sharing

import (
	"context"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Script is a Lua script. Redis keeps it; a call sends its sum only.
type Script struct{ lua *valkey.Lua }

// NewScript returns a script. Its keys are KEYS, all with the prefix of the client, and
// its arguments ARGV.
func NewScript(text string) *Script { return &Script{valkey.NewLuaScript(text)} }

// call is a script, or else a command: name, keys, args.
type call struct {
	script     *Script
	name       string
	keys, args []string
}

// on makes the call with a client of the library.
func (q call) on(ctx context.Context, client valkey.Client) (Value, error) {
	if q.script != nil {
		return answerOf(q.script.lua.Exec(ctx, client, q.keys, q.args))
	}
	return answerOf(client.Do(ctx, client.B().Arbitrary(q.name).Keys(q.keys...).Args(q.args...).Build()))
}

// Do runs a command whose words are its name, its keys and then its arguments, such as
// GET, MGET, SET, DEL, PEXPIRE and PUBLISH. It is for housekeeping: it waits until ctx
// ends. operation is a word for the Observer.
func (c *Client) Do(ctx context.Context, operation, name string, keys []string, args ...string) (Value, error) {
	return c.housekeep(ctx, operation, call{name: name, keys: keys, args: args})
}

// Eval runs a script, see Do.
func (c *Client) Eval(ctx context.Context, operation string, script *Script, keys []string, args ...string) (Value, error) {
	return c.housekeep(ctx, operation, call{script: script, keys: keys, args: args})
}

// housekeep makes a call on the bulk connection.
func (c *Client) housekeep(ctx context.Context, operation string, q call) (Value, error) {
	client := c.bulk.Load()
	if client == nil {
		return Value{}, c.notConnected()
	}
	begin := time.Now()
	v, err := q.on(ctx, *client)
	c.cfg.Observer.Done(operation, time.Since(begin), err)
	return v, err
}

// notConnected says that there is no connection yet, and why.
func (c *Client) notConnected() error {
	if reason := c.breaker.reason(); reason != nil {
		return fmt.Errorf("%w: %w", ErrAway, reason)
	}
	return ErrAway
}

// Subscribe calls receive with each message of a channel until ctx ends or the
// connection is lost, and returns the error. Messages that are sent while there is no
// subscription are lost. In a cluster the channel is a key: give it the prefix.
func (c *Client) Subscribe(ctx context.Context, channel string, receive func(message string)) error {
	client := c.bulk.Load()
	if client == nil {
		return c.notConnected()
	}
	return (*client).Receive(ctx, (*client).B().Subscribe().Channel(channel).Build(), func(m valkey.PubSubMessage) { receive(m.Message) })
}

// Fast runs a script for a request of a client. It returns within the deadline of the
// Config, and at once with ErrAway while Redis is left alone.
func (c *Client) Fast(operation string, script *Script, keys []string, args ...string) (Value, error) {
	client := c.fast.Load()
	if client == nil || c.breaker.open() {
		return Value{}, ErrAway
	}
	select {
	case c.slots <- struct{}{}:
	default:
		return Value{}, ErrAway
	}
	begin := time.Now()
	v, err := c.within(c.deadline, *client, call{script: script, keys: keys, args: args}, func() { <-c.slots })
	c.breaker.note(err)
	c.cfg.Observer.Done(operation, time.Since(begin), err)
	return v, err
}

// within makes a call and leaves it behind when the time is over. The call itself has time
// to connect, or a connection that takes longer than the limit would never be made.
// ended is called when the call has ended.
func (c *Client) within(limit time.Duration, client valkey.Client, q call, ended func()) (Value, error) {
	type answer struct {
		value Value
		err   error
	}
	ctx, cancel := context.WithTimeout(c.ctx, max(limit, dialTimeout))
	answers := make(chan answer, 1) // a late answer is not received
	go func() {
		defer cancel()
		defer ended()
		v, err := q.on(ctx, client)
		answers <- answer{v, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
		return Value{}, fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
	}
}

const (
	// maxLater is the most writes of Later that wait.
	maxLater = 1024
	// laterTimeout bounds one write of Later, unless Fast may take longer.
	laterTimeout = time.Second
)

// write is a call of Later.
type write struct {
	operation string
	call
}

// Later runs a script soon, and nobody waits for it. While Redis is left alone, or if
// too many wait, it does nothing.
func (c *Client) Later(operation string, script *Script, keys []string, args ...string) {
	if !c.breaker.open() {
		select {
		case c.later <- write{operation, call{script: script, keys: keys, args: args}}:
			return
		default:
		}
	}
	c.cfg.Observer.Dropped(operation)
}

// write makes the calls of Later, until ctx ends.
func (c *Client) write(ctx context.Context) {
	for {
		var w write
		select {
		case <-ctx.Done():
			return
		case w = <-c.later:
		}
		client := c.fast.Load()
		if client == nil || c.breaker.open() {
			c.cfg.Observer.Dropped(w.operation)
			continue
		}
		begin := time.Now()
		limited, cancel := context.WithTimeout(ctx, max(laterTimeout, c.deadline))
		_, err := w.on(limited, *client)
		cancel()
		c.breaker.note(err)
		c.cfg.Observer.Done(w.operation, time.Since(begin), err)
	}
}

// Value is an answer of Redis. The zero Value is nil.
type Value struct{ message valkey.ValkeyMessage }

// IsNil reports whether there is no value: the key does not exist.
func (v Value) IsNil() bool { return v == Value{} || v.message.IsNil() }

// Bytes returns a string. Anything else, an absent value too, is nil.
func (v Value) Bytes() []byte {
	b, err := v.message.AsBytes()
	if err != nil {
		return nil
	}
	return b
}

// Int returns an integer, or a string that is one, and whether it is.
func (v Value) Int() (int64, bool) {
	n, err := v.message.AsInt64()
	return n, err == nil
}

// Array returns the elements of an array. Anything else has none.
func (v Value) Array() []Value {
	all, err := v.message.ToArray()
	if err != nil {
		return nil
	}
	values := make([]Value, len(all))
	for i, m := range all {
		values[i] = Value{m}
	}
	return values
}

// answerOf splits a result of the library. A nil is a Value, not an error.
func answerOf(result valkey.ValkeyResult) (Value, error) {
	message, err := result.ToMessage()
	if err != nil && !valkey.IsValkeyNil(err) {
		return Value{}, err
	}
	return Value{message}, nil
}
