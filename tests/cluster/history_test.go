package cluster

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What was asked of a document. A value of 0 is no document: a removal writes it, and a reader that finds none reads it.
type request struct {
	key   string
	write bool
	value int
}

// history is what clients asked and were told. Its times are nanoseconds since it began.
type history struct {
	began      time.Time
	mutex      sync.Mutex
	operations []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(client int, asked request, call, end int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: asked, Call: call, Return: end,
	})
}

// saw adds a read that was answered, and wrote a write that was.
func (h *history) saw(client int, key string, value int, call int64) {
	h.add(client, request{key: key, value: value}, call, h.now())
}

func (h *history) wrote(client int, key string, value int, call int64) {
	h.add(client, request{key: key, write: true, value: value}, call, h.now())
}

// mayHaveWritten adds a write of which nobody knows whether it took place, or when it will.
func (h *history) mayHaveWritten(client int, key string, value int, call int64) {
	h.add(client, request{key: key, write: true, value: value}, call, math.MaxInt64)
}

// Each document is a register of its own.
var registers = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, operation := range all {
			key := operation.Input.(request).key
			byKey[key] = append(byKey[key], operation)
		}
		parts := make([][]porcupine.Operation, 0, len(byKey))
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		asked := input.(request)
		if asked.write {
			return true, asked.value
		}
		return asked.value == state.(int), state
	},
	DescribeOperation: func(input, _ any) string {
		asked := input.(request)
		if asked.write {
			return fmt.Sprintf("%s := %d", asked.key, asked.value)
		}
		return fmt.Sprintf("%s is %d", asked.key, asked.value)
	},
}

// suspects returns the keys whose operations could not have happened one after the other.
func (h *history) suspects() []string {
	var keys []string
	for _, part := range registers.Partition(h.operations) {
		if !porcupine.CheckOperations(registers, part) {
			keys = append(keys, part[0].Input.(request).key)
		}
	}
	sort.Strings(keys)
	return keys
}

// judge fails the test unless the history is linearizable. What is wrong is drawn into a file.
func (h *history) judge(t *testing.T) {
	t.Helper()
	suspects := h.suspects()
	if len(suspects) == 0 {
		return
	}
	for _, part := range registers.Partition(h.operations) {
		if part[0].Input.(request).key != suspects[0] {
			continue
		}
		_, drawn := porcupine.CheckOperationsVerbose(registers, part, 0)
		path := filepath.Join(os.TempDir(), strings.ReplaceAll(t.Name(), "/", "-")+".html")
		if err := porcupine.VisualizePath(registers, drawn, path); err != nil {
			path = err.Error()
		}
		t.Errorf("the histories of %v are not linearizable; the first: %s", suspects, path)
	}
}

func TestTheJudgeKnowsRightFromWrong(t *testing.T) {
	type step struct {
		request
		call, end int64
	}
	read := func(value int, call, end int64) step { return step{request{"k", false, value}, call, end} }
	write := func(value int, call, end int64) step { return step{request{"k", true, value}, call, end} }
	const never = math.MaxInt64
	for name, table := range map[string]struct {
		steps []step
		right bool
	}{
		"a write is read":                       {[]step{write(1, 0, 1), read(1, 2, 3)}, true},
		"an acknowledged write is lost":         {[]step{write(1, 0, 1), read(0, 2, 3)}, false},
		"an acknowledged write is undone":       {[]step{write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)}, false},
		"a write is read before it is answered": {[]step{write(1, 0, 9), read(1, 2, 3), read(1, 4, 5)}, true},
		"a read value disappears":               {[]step{write(1, 0, 9), read(1, 2, 3), read(0, 4, 5)}, false},
		"an ambiguous write shows late":         {[]step{write(1, 0, never), read(0, 2, 3), read(1, 4, 5)}, true},
		"an ambiguous write never shows":        {[]step{write(1, 0, never), read(0, 2, 3), read(0, 4, 5)}, true},
		"an ambiguous write shows, then not":    {[]step{write(1, 0, never), read(1, 2, 3), read(0, 4, 5)}, false},
		"a removed document comes back":         {[]step{write(1, 0, 1), write(0, 2, 3), read(1, 4, 5)}, false},
		"nobody wrote it":                       {[]step{read(7, 0, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			history := newHistory()
			for client, step := range table.steps {
				history.add(client, step.request, step.call, step.end)
			}
			if right := len(history.suspects()) == 0; right != table.right {
				t.Fatalf("judged %v", right)
			}
		})
	}
}
