// Go's side: concurrency.Mutex and concurrency.Election, driven by lines on stdin. See xtask/src/interop/peer.rs.
//
//	lock NAME LEASE_MS WAIT_MS    held | busy
//	unlock NAME                   free | lost
//	campaign NAME LABEL WAIT_MS   held | busy
//	resign NAME                   free | lost
//	leader NAME                   the first line of the leader's value, or -
//	spin NAME FOR_MS WITNESS      turns and violations
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

var client *clientv3.Client

func session(leaseMs int) (*concurrency.Session, error) {
	return concurrency.NewSession(client, concurrency.WithTTL((leaseMs+999)/1000))
}

func patience(waitMs int) (context.Context, context.CancelFunc) {
	// A mutex that is not in at once stands in line, so not waiting is waiting for a moment.
	if waitMs < 100 {
		waitMs = 100
	}
	return context.WithTimeout(context.Background(), time.Duration(waitMs)*time.Millisecond)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func spin(name string, forMs int, witness string) string {
	s, err := session(10000)
	if err != nil {
		return "error " + err.Error()
	}
	defer s.Close()
	m := concurrency.NewMutex(s, name)
	turns, violations := 0, 0
	end := time.Now().Add(time.Duration(forMs) * time.Millisecond)
	for time.Now().Before(end) {
		if err := m.Lock(context.Background()); err != nil {
			return "error " + err.Error()
		}
		file, err := os.OpenFile(witness, os.O_CREATE|os.O_EXCL, 0600)
		if err != nil {
			violations++
		} else {
			file.Close()
			os.Remove(witness)
		}
		turns++
		if err := m.Unlock(context.Background()); err != nil {
			return "error " + err.Error()
		}
	}
	return fmt.Sprintf("%d %d", turns, violations)
}

func main() {
	var err error
	client, err = clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ","), DialTimeout: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	sessions := map[string]*concurrency.Session{}
	mutexes := map[string]*concurrency.Mutex{}
	elections := map[string]*concurrency.Election{}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		name := words[1]
		switch words[0] {
		case "lock":
			s, err := session(number(words[2]))
			if err != nil {
				panic(err)
			}
			m := concurrency.NewMutex(s, name)
			ctx, cancel := patience(number(words[3]))
			if err := m.Lock(ctx); err != nil {
				s.Close()
				fmt.Println("busy")
			} else {
				sessions[name], mutexes[name] = s, m
				fmt.Println("held")
			}
			cancel()
		case "unlock":
			if mutexes[name] == nil || mutexes[name].Unlock(context.Background()) != nil {
				fmt.Println("lost")
			} else {
				sessions[name].Close()
				fmt.Println("free")
			}
			delete(mutexes, name)
		case "campaign":
			s, err := session(3000)
			if err != nil {
				panic(err)
			}
			e := concurrency.NewElection(s, name)
			ctx, cancel := patience(number(words[3]))
			if err := e.Campaign(ctx, words[2]); err != nil {
				s.Close()
				fmt.Println("busy")
			} else {
				sessions[name], elections[name] = s, e
				fmt.Println("held")
			}
			cancel()
		case "resign":
			if elections[name] == nil || elections[name].Resign(context.Background()) != nil {
				fmt.Println("lost")
			} else {
				fmt.Println("free")
			}
		case "leader":
			s, err := session(3000)
			if err != nil {
				panic(err)
			}
			leader, err := concurrency.NewElection(s, name).Leader(context.Background())
			if err != nil {
				fmt.Println("-")
			} else {
				fmt.Println(strings.SplitN(string(leader.Kvs[0].Value), "\n", 2)[0])
			}
			s.Close()
		case "spin":
			fmt.Println(spin(name, number(words[2]), words[3]))
		}
	}
}
