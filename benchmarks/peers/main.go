// Two parts of bench_watch.py that are best not written in Python.
//
//	peers watch NAMESPACE   a controller of controller-runtime, in its ordinary settings, that notes when a reconcile starts
//	peers change NAMESPACE  changes pods at a steady rate, and notes when
//
// Both follow commands on standard input, and answer each with one line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const selector = "simrun/run"

func main() {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	check(err)
	if len(os.Args) != 3 {
		check(fmt.Errorf("usage: %s watch|change NAMESPACE", os.Args[0]))
	}
	switch os.Args[1] {
	case "watch":
		watch(config, os.Args[2])
	case "change":
		change(config, os.Args[2])
	}
}

// seen is one line of what was noted: the pod, the number in its message, and nanoseconds since 1970.
type seen struct {
	Pod    string `json:"pod"`
	Number int    `json:"number"`
	At     int64  `json:"at"`
	Done   int64  `json:"done,omitempty"`
}

// watch answers "mark" with {"cpu_s", "rss_mb"} and "seen" with what it noted since it was asked the last time.
func watch(config *rest.Config, namespace string) {
	log.SetLogger(logr.Discard())
	wanted, err := labels.Parse(selector)
	check(err)
	made, err := manager.New(config, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: wanted}},
		},
	})
	check(err)
	var lock sync.Mutex
	notes := []seen{}
	begin := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		at := time.Now().UnixNano()
		var pod corev1.Pod
		if err := made.GetClient().Get(ctx, request.NamespacedName, &pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if number, err := strconv.Atoi(pod.Status.Message); err == nil {
			lock.Lock()
			notes = append(notes, seen{Pod: pod.Name, Number: number, At: at})
			lock.Unlock()
		}
		return reconcile.Result{}, nil
	}
	check(builder.ControllerManagedBy(made).For(&corev1.Pod{}).Complete(reconcile.Func(begin)))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		if made.GetCache().WaitForCacheSync(ctx) {
			answer("ready")
		}
		commands(func(words []string) any {
			if words[0] == "mark" {
				return usage()
			}
			lock.Lock()
			defer lock.Unlock()
			found := notes
			notes = []seen{}
			return found
		})
		stop()
	}()
	check(made.Start(ctx))
}

// change answers "go RATE COUNT PODS [BODY]" once it has changed the status of pods bench-0, bench-1, … in turn: to this, and the message to
// a number that grows. It writes them whole, which costs the server half of what a patch does. What the server did not answer has no
// "done".
func change(config *rest.Config, namespace string) {
	config.QPS = -1
	pods, err := client.New(config, client.Options{})
	check(err)
	number := 0
	answer("ready")
	commands(func(words []string) any {
		rate, _ := strconv.ParseFloat(words[1], 64)
		count, _ := strconv.Atoi(words[2])
		among, _ := strconv.Atoi(words[3])
		var status corev1.PodStatus
		if len(words) > 4 {
			check(json.Unmarshal([]byte(words[4]), &status))
		}
		var list corev1.PodList
		check(pods.List(context.Background(), &list, client.InNamespace(namespace)))
		there := map[string]*corev1.Pod{}
		for place := range list.Items {
			pod := &list.Items[place]
			pod.ResourceVersion, pod.ManagedFields = "", nil // whatever it is by now
			there[pod.Name] = pod
		}
		busy := make([]sync.Mutex, among)
		notes := make([]seen, count)
		var group sync.WaitGroup
		begin := time.Now()
		for turn := range count {
			time.Sleep(time.Until(begin.Add(time.Duration(float64(turn) / rate * 1e9))))
			number++
			group.Add(1)
			go func(turn, number int) {
				defer group.Done()
				name := fmt.Sprintf("bench-%d", turn%among)
				busy[turn%among].Lock() // two writes of one object at a time would make the server do both again
				defer busy[turn%among].Unlock()
				pod := there[name].DeepCopy()
				if status.Phase != "" {
					pod.Status.Phase, pod.Status.ContainerStatuses = status.Phase, status.ContainerStatuses
				}
				pod.Status.Message = strconv.Itoa(number)
				note := seen{Pod: name, Number: number, At: time.Now().UnixNano()}
				if pods.Status().Update(context.Background(), pod) == nil {
					note.Done = time.Now().UnixNano()
				}
				notes[turn] = note
			}(turn, number)
		}
		group.Wait()
		return notes
	})
}

func commands(do func([]string) any) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer(do(strings.Fields(lines.Text())))
	}
}

func answer(what any) {
	check(json.NewEncoder(os.Stdout).Encode(what))
}

func usage() any {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return map[string]float64{
		"cpu_s":  seconds(used.Utime) + seconds(used.Stime),
		"rss_mb": float64(used.Maxrss) / 1024,
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
