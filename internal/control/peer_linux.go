package control

import (
	"fmt"
	"net"
	"os/user"
	"syscall"
)

// peerOf says who has opened a connection: the kernel knows (unix(7), SO_PEERCRED).
func peerOf(conn net.Conn) string {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return unknownPeer
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return unknownPeer
	}
	var cred *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil || err != nil {
		return unknownPeer
	}
	uid := fmt.Sprint(cred.Uid)
	if u, err := user.LookupId(uid); err == nil {
		return fmt.Sprintf("User %q (uid %s)", u.Username, uid)
	}
	return "The user with uid " + uid
}
