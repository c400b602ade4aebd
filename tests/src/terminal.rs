//! A terminal for a supervisor under test, so that Ctrl-C can be pressed.
//!
//! A pty made by safe calls, and `setsid --ctty` (util-linux), which makes it the
//! controlling terminal of a new session and then becomes the program: pid and exit
//! status are the program's own.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

use crate::log::Log;

const CTRL_C: u8 = 0x03;

#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    /// What was written to the screen (stdout; the log has a pipe of its own).
    pub screen: Log,
}

impl Terminal {
    /// A terminal, and a command that will run `program` on it.
    pub fn open(program: &Path) -> (Terminal, Command) {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).expect("open a pty");
        grantpt(&master).expect("grant the pty");
        unlockpt(&master).expect("unlock the pty");
        let name = ptsname_r(&master).expect("the pty has a name");
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(name)
            .expect("open the pty's other side");
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(program)
            .stdin(slave.try_clone().expect("duplicate the pty"))
            .stdout(Stdio::from(slave));
        let keyboard = File::from(master.as_fd().try_clone_to_owned().expect("duplicate the pty"));
        let screen = Log::read(keyboard.try_clone().expect("duplicate the pty"));
        (Terminal { keyboard, screen }, command)
    }

    /// What a finger on Ctrl-C does: the kernel sends SIGINT to the foreground group.
    pub fn press_ctrl_c(&mut self) {
        self.keyboard.write_all(&[CTRL_C]).expect("press Ctrl-C");
    }
}
