// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command traffic is what runs in pods while machines and networks fail.
//
//	traffic echo ADDRESS   send back what each connection sends
//	traffic talk ADDRESS   keep one connection busy, and print a line each time that it is cut
//	traffic hold FILE      hold the lock of a file, or note in FILE.twice that another process holds it
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: traffic echo|talk|hold ADDRESS|FILE")
	}
	verbs := map[string]func(string) error{"echo": echo, "talk": talk, "hold": hold}
	verb, ok := verbs[os.Args[1]]
	if !ok {
		log.Fatalf("unknown: %s", os.Args[1])
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	log.Fatal(verb(os.Args[2]))
}

func echo(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

const (
	pause = 100 * time.Millisecond
	// stalled is longer than TCP takes to recover from the cuts of a network that the scenarios make.
	stalled = time.Minute
)

func talk(address string) error {
	for {
		lines, err := converse(address)
		fmt.Printf("cut after %d lines: %v\n", lines, err)
		time.Sleep(pause)
	}
}

// converse returns how many lines came back over one connection before it failed.
func converse(address string) (lines int, err error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	answers := bufio.NewScanner(c)
	for ; ; lines++ {
		if err := c.SetDeadline(time.Now().Add(stalled)); err != nil {
			return lines, err
		}
		if _, err := fmt.Fprintln(c, lines); err != nil {
			return lines, err
		}
		if !answers.Scan() {
			return lines, answers.Err()
		}
		if got := answers.Text(); got != fmt.Sprint(lines) {
			return lines, fmt.Errorf("%q came back for %d", got, lines)
		}
		time.Sleep(pause)
	}
}

func hold(file string) error {
	lock, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if note := os.WriteFile(file+".twice", []byte(err.Error()), 0o644); note != nil {
			return note
		}
		return err
	}
	select {}
}
