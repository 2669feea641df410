package say

import (
	"net"
	"os"
	"strings"
	"time"
)

// notifyTimeout is how long Notify waits for a manager that reads nothing.
const notifyTimeout = time.Second / 2

// Managed reports whether a service manager wants to be told how this process is: $NOTIFY_SOCKET names
// its socket (sd_notify(3)).
func Managed() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Notify tells the service manager lines such as READY=1 (sd_notify(3)). It does nothing if there is none,
// and takes half a second at most. It is safe for concurrent use.
func Notify(lines ...string) error {
	if !Managed() {
		return nil
	}
	to := &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"} // net knows a leading @
	conn, err := net.DialUnix(to.Net, nil, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(strings.Join(lines, "\n")))
	return err
}
