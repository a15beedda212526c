package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	pluginnames "k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	kjson "sigs.k8s.io/json"
)

// state is one line of the input of "plugins placements": a cluster as it is
// now, and what is known of how it became so.
type state struct {
	example // its Pod isn't used

	// SchedulerNames are the schedulers that are checked. The Pods of others
	// count on their nodes, and nothing is said of them. Empty: all are.
	SchedulerNames []string `json:"schedulerNames"`

	// Created are the UIDs of Pods that have to be there.
	Created []types.UID `json:"created"`

	// Seen is what watches of the Pods showed, and Events the events of the
	// Pods; both say on which nodes a Pod has been.
	Seen   []sighting        `json:"seen"`
	Events []*eventsv1.Event `json:"events"`
}

// sighting is a Pod on a node, as a watch showed it.
type sighting struct {
	UID  types.UID `json:"uid"`
	Node string    `json:"node"`
}

// misplacement is a Pod on a node that kube-scheduler's filters refuse it, and
// what they say. Without plugins: the node isn't there.
type misplacement struct {
	Pod     string             `json:"pod"`
	Node    string             `json:"node"`
	Plugins map[string]verdict `json:"plugins"`
}

// repetition is a Pod that was bound more than once: on several nodes, or by
// several Scheduled events.
type repetition struct {
	Pod       string   `json:"pod"`
	Nodes     []string `json:"nodes"`
	Scheduled int      `json:"scheduled"`
}

// leftover is a Pod that waits although it fits on nodes.
type leftover struct {
	Pod   string   `json:"pod"`
	Nodes []string `json:"nodes"`
}

// findings is one line of the output.
type findings struct {
	Placed     int            `json:"placed"`
	Waiting    int            `json:"waiting"`
	Misplaced  []misplacement `json:"misplaced"`
	BoundTwice []repetition   `json:"boundTwice"`
	Left       []leftover     `json:"left"`
	Lost       []types.UID    `json:"lost"`
}

// maxLeftNodes bounds the nodes that are named for a Pod that was left.
const maxLeftNodes = 5

func newChecking() (work, error) {
	evaluator, err := newEvaluator(context.Background())
	if err != nil {
		return nil, err
	}
	return answering(readState, evaluator.findings), nil
}

func readState(line []byte) (*state, error) {
	var read state
	strict, err := kjson.UnmarshalStrict(line, &read)
	if err == nil && len(strict) > 0 {
		err = strict[0] // a misspelt field would make a check of nothing
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	known := make(map[types.UID]bool, len(read.Pods))
	for _, pod := range read.Pods {
		pod.Namespace = namespaceOf(pod)
		if pod.UID == "" || known[pod.UID] {
			return nil, fmt.Errorf("reading the state: the Pod %q has no UID of its own", pod.Name)
		}
		known[pod.UID] = true
	}
	return &read, nil
}

func (s *state) checks(pod *corev1.Pod) bool {
	return len(s.SchedulerNames) == 0 || slices.Contains(s.SchedulerNames, pod.Spec.SchedulerName)
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && !hasEnded(pod)
}

func (e *evaluator) findings(read *state) (*findings, error) {
	e.cluster.become(&read.example)
	filters, err := e.allFilters()
	if err != nil {
		return nil, err
	}
	all, err := e.cluster.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	found := &findings{
		Misplaced:  []misplacement{},
		BoundTwice: read.boundTwice(),
		Left:       []leftover{},
		Lost:       read.lost(),
	}
	for _, pod := range read.Pods {
		switch {
		case !read.checks(pod):
		case waits(pod):
			found.Waiting++
			if nodes := e.fitting(pod, filters, all); len(nodes) > 0 {
				found.Left = append(found.Left, leftover{nameOf(pod), nodes[:min(len(nodes), maxLeftNodes)]})
			}
		case pod.Spec.NodeName != "" && !hasEnded(pod):
			found.Placed++
			refusals, err := e.refusals(read, pod, filters)
			if err != nil {
				return nil, err
			}
			if refusals != nil {
				found.Misplaced = append(found.Misplaced, misplacement{nameOf(pod), pod.Spec.NodeName, refusals})
			}
		}
	}
	return found, nil
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// allFilters are all filter plugins but for the one of claims, with upstream's
// defaults: a claim that is deleted later says nothing about where its Pod went.
func (e *evaluator) allFilters() (map[string]fwk.FilterPlugin, error) {
	filters := map[string]fwk.FilterPlugin{}
	for _, asked := range probes {
		if !asked.filters || asked.plugin == pluginnames.VolumeBinding {
			continue
		}
		made, err := e.plugin(asked, asked.arguments)
		if err != nil {
			return nil, err
		}
		filters[asked.key] = made.(fwk.FilterPlugin)
	}
	return filters, nil
}

// fitting are the names of the nodes that no filter refuses a Pod.
func (e *evaluator) fitting(pod *corev1.Pod, filters map[string]fwk.FilterPlugin, all []fwk.NodeInfo) []string {
	left := slices.Clone(all)
	memory := framework.NewCycleState()
	for _, plugin := range filters {
		statuses := e.filterOne(pod, memory, plugin, all, left)
		passed := left[:0]
		for index, node := range left {
			if statuses[index].IsSuccess() || statuses[index].IsSkip() {
				passed = append(passed, node)
			}
		}
		left = passed
	}
	names := make([]string, len(left))
	for index, node := range left {
		names[index] = node.Node().Name
	}
	slices.Sort(names)
	return names
}

// refusals are what filters have against a Pod on its node, beside the other
// Pods and without itself; nil when they have nothing.
func (e *evaluator) refusals(
	read *state, pod *corev1.Pod, filters map[string]fwk.FilterPlugin,
) (map[string]verdict, error) {
	putBack, err := e.without(read, pod)
	if err != nil {
		return map[string]verdict{}, nil // there is no such node
	}
	defer putBack()
	all, err := e.cluster.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	node, err := e.cluster.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	bare := pod.DeepCopy()
	bare.Spec.NodeName = "" // as it was when a scheduler was asked
	var refused map[string]verdict
	memory := framework.NewCycleState()
	for key, plugin := range filters {
		status := e.filterOne(bare, memory, plugin, all, []fwk.NodeInfo{node})[0]
		if status.IsSuccess() || status.IsSkip() {
			continue
		}
		if refused == nil {
			refused = map[string]verdict{}
		}
		refused[key] = verdict{status.Code().String(), reasons(status)}
	}
	return refused, nil
}

// without takes a Pod off its node. A Pod with claims needs a new snapshot,
// which counts the claims in use. For all others the node's own account does:
// all Pods are taken off it and the others put back, because upstream's account
// of host ports is a set, from which one of two Pods with the same port takes it
// away for both.
func (e *evaluator) without(read *state, pod *corev1.Pod) (putBack func(), err error) {
	node, err := e.cluster.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil
	}) {
		others := read.example
		others.Pods = slices.DeleteFunc(slices.Clone(read.Pods), func(other *corev1.Pod) bool { return other == pod })
		e.cluster.become(&others)
		return func() { e.cluster.become(&read.example) }, nil
	}
	present := slices.Clone(node.GetPods())
	if err := e.clear(node); err != nil {
		return nil, err
	}
	for _, other := range present {
		if other.GetPod().UID != pod.UID {
			node.AddPodInfo(other)
		}
	}
	return func() {
		if err := e.clear(node); err != nil {
			panic(err) // it was possible a moment ago
		}
		for _, other := range present {
			node.AddPodInfo(other)
		}
	}, nil
}

// clear takes all Pods off a node.
func (e *evaluator) clear(node fwk.NodeInfo) error {
	for _, present := range slices.Clone(node.GetPods()) {
		if err := node.RemovePod(klog.FromContext(e.ctx), present.GetPod()); err != nil {
			return fmt.Errorf("taking a Pod off its node: %w", err)
		}
	}
	return nil
}

// boundTwice are the Pods that watches or events show on several nodes, or that
// were told of as scheduled several times.
func (s *state) boundTwice() []repetition {
	names := map[types.UID]string{}
	nodes := map[types.UID]map[string]bool{}
	scheduled := map[types.UID]int{}
	note := func(uid types.UID, node string) {
		if node == "" {
			return
		}
		if nodes[uid] == nil {
			nodes[uid] = map[string]bool{}
		}
		nodes[uid][node] = true
	}
	for _, pod := range s.Pods {
		if s.checks(pod) {
			names[pod.UID] = nameOf(pod)
			note(pod.UID, pod.Spec.NodeName)
		}
	}
	for _, seen := range s.Seen {
		note(seen.UID, seen.Node)
	}
	for _, event := range s.Events {
		if event.Reason != "Scheduled" {
			continue
		}
		scheduled[event.Regarding.UID] += times(event)
		note(event.Regarding.UID, event.Note[strings.LastIndex(event.Note, " ")+1:])
	}
	found := []repetition{}
	for uid, on := range nodes {
		if len(on) > 1 || scheduled[uid] > 1 {
			name := cmp.Or(names[uid], string(uid))
			found = append(found, repetition{name, slices.Sorted(maps.Keys(on)), scheduled[uid]})
		}
	}
	slices.SortFunc(found, func(a, b repetition) int { return cmp.Compare(a.Pod, b.Pod) })
	return found
}

// times is how often an event was told.
func times(event *eventsv1.Event) int {
	if event.Series != nil {
		return max(1, int(event.Series.Count))
	}
	return max(1, int(event.DeprecatedCount))
}

// lost are the Pods that have to be there and aren't.
func (s *state) lost() []types.UID {
	present := make(map[types.UID]bool, len(s.Pods))
	for _, pod := range s.Pods {
		present[pod.UID] = true
	}
	lost := []types.UID{}
	for _, uid := range s.Created {
		if !present[uid] {
			lost = append(lost, uid)
		}
	}
	return lost
}
