"""Programs whose children do what they can to outlive them.

Each body runs in a Python without its site, with `PRELUDE` before it. Whatever shall not stay behind calls `stay`, or
`note` before it becomes something else: that leaves its number in the folder.
"""

PRELUDE = """
import ctypes, os, signal, sys, time
HERE, STAYS, PYTHON = sys.argv[1], sys.argv[2] == "stays", sys.executable
libc = ctypes.CDLL(None)
every = [one for one in signal.Signals if one not in (signal.SIGKILL, signal.SIGSTOP)]

def note():
    path = f"{HERE}/{os.getpid()}"
    os.close(os.open(path + ".new", os.O_CREAT | os.O_WRONLY))
    os.rename(path + ".new", path + ".pid")

def stay():
    note()
    while True:
        time.sleep(300)

def child(what, *words):
    pid = os.fork()
    if pid == 0:
        try:
            what(*words)
        finally:
            os._exit(0)
    return pid

def daemon(what=stay, *words):
    def middle():
        os.setsid()
        child(what, *words)
    os.waitpid(child(middle), 0)

def ignore(*numbers):
    for one in numbers or every:
        try:
            signal.signal(one, signal.SIG_IGN)
        except OSError:
            pass

def noted():
    return sum(name.endswith(".pid") for name in os.listdir(HERE))

def await_notes(count=1):
    end = time.monotonic() + 20
    while noted() < count and time.monotonic() < end:
        time.sleep(0.002)

def become(*argv, env=None):
    note()
    os.execve(argv[0], argv, {} if env is None else env)

def bare(code="stay()"):
    os.execve(PYTHON, [PYTHON, "-I", "-S", "-c", PRELUDE + code, HERE, "goes"], {})

def shell(text):
    os.waitpid(child(os.execve, "/bin/sh", ["sh", "-c", text], dict(os.environ)), 0)

def end():
    await_notes()
    if STAYS:
        stay()
"""
_SHELL_NOTE = "touch {HERE}/$$.pid"

BODIES = {
    "a plain child": "child(stay)",
    "a session of its own": "child(lambda: (os.setsid(), stay()))",
    "a group of its own": "child(lambda: (os.setpgid(0, 0), stay()))",
    "two forks": "child(child, stay)",
    "a daemon": "daemon()",
    "a cleared environment": "child(bare)",
    "a daemon with a cleared environment": "daemon(bare)",
    "ignores SIGTERM": "child(lambda: (ignore(signal.SIGTERM), stay()))",
    "a daemon that ignores every signal": "daemon(lambda: (ignore(), bare()))",
    "a daemon that blocks every signal": "daemon(lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, every), bare()))",
    "closed handles": "daemon(lambda: (os.closerange(0, 256), stay()))",
    "another folder": "daemon(lambda: (os.chdir('/'), os.umask(0), stay()))",
    "becomes another program": "daemon(become, '/bin/sleep', '300')",
    "becomes another program with its handles closed": "daemon(lambda: (os.closerange(0, 3), become('/bin/sleep', '300')))",
    "forks at the end of Python": "import atexit\natexit.register(lambda: (daemon(bare), await_notes()))\nif not STAYS: sys.exit()\ndaemon()",
    "forks when it is interrupted": (
        "def again(*_):\n    daemon(bare)\n    time.sleep(0.05)\n"
        "child(lambda: ([signal.signal(one, again) for one in (signal.SIGINT, signal.SIGTERM)], stay()))"
    ),
    "another name": "daemon(lambda: (libc.prctl(15, b'kworker/0:1', 0, 0, 0), stay()))",
    "five generations": "def older(n):\n    child(older, n - 1) if n else bare()\nolder(5)",
    "eight children": "[child(bare) for _ in range(8)]\nawait_notes(8)",
    "adopts its own orphans": "libc.prctl(36, 1, 0, 0, 0)\ndaemon(bare)",
    "adopts orphans two forks down": "def adopts():\n    libc.prctl(36, 1, 0, 0, 0)\n    daemon(bare)\n    stay()\ndaemon(adopts)",
    "is stopped": "daemon(lambda: (note(), os.kill(os.getpid(), signal.SIGSTOP)))",
    "is spawned": "os.posix_spawn('/bin/sh', ['sh', '-c', f'touch {HERE}/$$.pid; exec sleep 300'], {'PATH': os.environ['PATH']}, setsid=True)",
    "kills its parent": "daemon(bare)\nawait_notes()\nos.kill(os.getppid(), signal.SIGKILL)",
    "stops its parent": "daemon(bare)\nawait_notes()\nos.kill(os.getppid(), signal.SIGSTOP)",
    "interrupts its parent": "daemon(bare)\nawait_notes()\n[os.kill(os.getppid(), one) for one in (1, 2, 3, 15)]",
    "a child kills its grandparent": "up = os.getppid()\ndaemon(lambda: (note(), os.kill(up, signal.SIGKILL), bare()))",
    "a thread forks last": "import threading\nthreading.Thread(target=daemon, args=(bare,)).start()",
    "writes without end": "daemon(lambda: (note(), [os.write(1, b'x' * 65536) for _ in iter(int, 1)]))",
    "forks for ever": (
        "def next_one():\n    note()\n    while True:\n        time.sleep(0.02)\n        if os.fork():\n            os._exit(0)\n        os.setsid()\n"
        "daemon(next_one)"
    ),
    "two that watch over each other": (
        "def watches(other):\n    note()\n    while True:\n        time.sleep(0.02)\n"
        "        try:\n            os.kill(other, 0)\n        except ProcessLookupError:\n            other = child(watches, os.getpid())\n"
        "        os.waitpid(-1, os.WNOHANG) if other != os.getppid() else None\n"
        "daemon(lambda: child(watches, os.getpid()) and stay())\nawait_notes(2)"
    ),
    "nohup": "shell(f'nohup sh -c \"{n}; exec sleep 300\" > /dev/null 2>&1 &')",
    "a shell in the background": "shell(f'( ( {n}; exec sleep 300 ) & ) &')",
    "setsid of a shell": "shell(f\"setsid sh -c '{n}; exec sleep 300' > /dev/null 2>&1 &\")",
    "env -i": "shell(f\"env -i setsid sh -c '{n}; exec /bin/sleep 300' < /dev/null > /dev/null 2>&1 &\")",
    "names of its own for processes": (
        "libc.unshare(0x20000000)\npid = child(lambda: (child(time.sleep, 300), time.sleep(300)))\nopen(f'{HERE}/{pid}.pid', 'w').close()"
    ),
    "another user": "daemon(lambda: (note(), os.geteuid() == 0 and os.setuid(65534), time.sleep(300)))",
    "its program is deleted": (
        "import shutil\nshutil.copy('/bin/sleep', f'{HERE}/gone')\ndaemon(become, f'{HERE}/gone', '300')\nawait_notes()\ntime.sleep(0.05)\nos.unlink(f'{HERE}/gone')"
    ),
    "a terminal of its own": "import pty\npty.fork()[0] or bare()",
    "the child of its parent": "pid = libc.syscall(56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)\npid or stay()",
    "ends by a signal": "daemon(bare)\nawait_notes()\nif not STAYS: os.kill(os.getpid(), signal.SIGSEGV)",
    "is killed": "daemon(bare)\nawait_notes()\nif not STAYS: os.kill(os.getpid(), signal.SIGKILL)",
    "ends without its output": "os.closerange(1, 3)\ndaemon(bare)",
}
"""What each does, by its name."""


def program(name: str) -> str:
    prelude = f"PRELUDE = {PRELUDE!r}\n{PRELUDE}\nn = f'{_SHELL_NOTE}'\n"
    return f"{prelude}\n{BODIES[name]}\nend()\n"
