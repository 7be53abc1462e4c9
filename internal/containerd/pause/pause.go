// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause assembles the pause program: the first process of a pod's namespaces, which waits until the pod's
// sandbox is stopped.
//
// The program is assembled from a table of four system calls instead of compiled from C or Go. It needs no C
// compiler, no binary in the repository and no build step, also for users who import Kindred as a library, and
// it uses one page of memory. See docs/decisions/0001-pause-image.md.
//
// In C it would be:
//
//	sigaction(SIGCHLD, {SIG_IGN});
//	sigprocmask(SIG_BLOCK, {SIGINT, SIGTERM});
//	while (sigtimedwait({SIGINT, SIGTERM}, NULL, NULL) < 0)
//		;
//	exit(0);
//
// Because SIGCHLD is ignored, the kernel reaps children at once, also adopted ones (sigaction(2), POSIX.1-2001).
// The first process of a PID namespace has to do that. The two signals are blocked because the kernel drops
// a signal with the default action to the first process of a PID namespace unless it is blocked
// (pid_namespaces(7)). An interrupted wait (SIGSTOP and SIGCONT) is repeated.
package pause

import "fmt"

// The constants of the kernel's ABI that are the same on both architectures.
const (
	sigInt   = 2
	sigTerm  = 15
	sigChld  = 17
	sigIgn   = 1 // the handler SIG_IGN
	sigBlock = 0 // the first argument of rt_sigprocmask
	sigSize  = 8 // bytes of a kernel signal set
)

// address is an argument that is an address in the program's data.
type address int

// The program's data: a struct sigaction of four words (handler, flags, restorer, mask)
// and a signal set.
const (
	actionOffset = address(0)
	signalOffset = address(32)
)

func data() []byte {
	d := make([]byte, 40)
	d[actionOffset] = sigIgn
	signals := uint64(1<<(sigInt-1) | 1<<(sigTerm-1))
	for i := range 8 {
		d[int(signalOffset)+i] = byte(signals >> (8 * i))
	}
	return d
}

// call is a system call. Its number is looked up by name for each architecture. An argument is a small constant
// (int) or an address.
type call struct {
	name string
	args []any
	// again is set to repeat the call while it fails.
	again bool
}

var program = []call{
	{name: "rt_sigaction", args: []any{sigChld, actionOffset, 0, sigSize}},
	{name: "rt_sigprocmask", args: []any{sigBlock, signalOffset, 0, sigSize}},
	{name: "rt_sigtimedwait", args: []any{signalOffset, 0, 0, sigSize}, again: true},
	{name: "exit_group", args: []any{0}},
}

// encoder writes the machine code of one architecture.
type encoder interface {
	// machine is the architecture's number in an ELF header.
	machine() uint16
	// constant loads a small number into the register of the n-th argument.
	constant(n int, value int)
	// pointer loads the address at an offset from the start of the code.
	pointer(n int, offset int)
	// syscall loads the call's number and traps.
	syscall(name string)
	// branchIfNegative jumps to an offset if the result is negative.
	branchIfNegative(offset int)
	// code returns the code so far.
	code() []byte
}

// encoders has the encoders by the Go name of the architecture.
var encoders = map[string]func() encoder{
	"amd64": func() encoder { return &amd64{} },
	"arm64": func() encoder { return &arm64{} },
}

// Binary returns the program as an ELF executable, for the Go name of an architecture.
func Binary(arch string) ([]byte, error) {
	newEncoder, ok := encoders[arch]
	if !ok {
		return nil, fmt.Errorf("no pause program for architecture %s, only for amd64 and arm64", arch)
	}
	// The data follows the code, whose length does not depend on the data's address: assemble once to
	// get it.
	draft := newEncoder()
	assemble(draft, 0)
	dataStart := (len(draft.code()) + 7) &^ 7
	e := newEncoder()
	assemble(e, dataStart)
	image := append(make([]byte, 0, dataStart+40), e.code()...)
	image = append(image, make([]byte, dataStart-len(image))...)
	return executable(e.machine(), append(image, data()...)), nil
}

func assemble(e encoder, dataStart int) {
	for _, c := range program {
		start := len(e.code())
		for n, arg := range c.args {
			switch a := arg.(type) {
			case int:
				e.constant(n, a)
			case address:
				e.pointer(n, dataStart+int(a))
			}
		}
		e.syscall(c.name)
		if c.again {
			e.branchIfNegative(start)
		}
	}
}
