// Command lab-pod runs in the pods of the lab's tests: a server, a client, or nothing but a process.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `lab-pod serve --http-port=PORT [--udp-port=PORT]
    Answers each HTTP request with the variable ANSWER of its environment, or with its host name, and
    receives UDP packets without an answer.
lab-pod connect [--timeout=DURATION] HOST:PORT
    Succeeds if a TCP connection is made.
lab-pod hostname
    Prints its host name.
lab-pod pause
    Waits for a signal.`

func main() {
	log.SetFlags(0)
	// Process 1 of a container ends only by signals that it handles.
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-end
		os.Exit(0)
	}()
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("lab-pod: %v", err)
	}
}

func run(words []string) error {
	if len(words) == 0 {
		return errors.New("no command; usage:\n" + usage)
	}
	flags := flag.NewFlagSet(words[0], flag.ExitOnError)
	httpPort := flags.Uint("http-port", 0, "the TCP port of HTTP")
	udpPort := flags.Uint("udp-port", 0, "the UDP port")
	timeout := flags.Duration("timeout", 10*time.Second, "the limit for a connection")
	// It exits the program on an error.
	_ = flags.Parse(words[1:])
	switch words[0] {
	case "serve":
		return serve(*httpPort, *udpPort)
	case "connect":
		return connect(flags.Arg(0), *timeout)
	case "hostname":
		name, err := os.Hostname()
		fmt.Println(name)
		return err
	case "pause":
		select {}
	default:
		return fmt.Errorf("unknown command %q; usage:\n%s", words[0], usage)
	}
}

func serve(httpPort, udpPort uint) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	if udpPort != 0 {
		socket, err := net.ListenPacket("udp", fmt.Sprintf(":%d", udpPort))
		if err != nil {
			return err
		}
		log.Printf("Started UDP server on port %d", udpPort)
		go receive(socket)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", httpPort))
	if err != nil {
		return err
	}
	log.Printf("Started HTTP server on port %d", listener.Addr().(*net.TCPAddr).Port)
	answer := cmp.Or(os.Getenv("ANSWER"), name)
	return http.Serve(listener, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(out, answer)
	}))
}

func receive(socket net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		if _, _, err := socket.ReadFrom(buffer); err != nil {
			log.Fatalf("lab-pod: %v", err)
		}
	}
}

func connect(address string, timeout time.Duration) error {
	connection, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return err
	}
	return connection.Close()
}
