//! Descriptors that travel from a child to its parent, over a pair of sockets.
//!
//! A message is some bytes and exactly one descriptor, sent and received whole. What does not look like that is
//! dropped, with whatever descriptors came with it.

use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv, recvmsg, sendmsg,
    socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// No message is longer.
const LONGEST_BYTES: usize = 8192;

/// Two ends; what is sent into the second comes out of the first.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socketpair(AddressFamily::Unix, SockType::Datagram, None, flags)?)
}

/// Sends a message with a descriptor, without waiting.
pub fn send(to: impl AsFd, bytes: &[u8], descriptor: impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd().as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(to.as_fd().as_raw_fd(), &[IoSlice::new(bytes)], &control, flags, None)?;
    Ok(())
}

/// The next message, if there is one.
pub fn receive(from: impl AsFd) -> Option<(Vec<u8>, OwnedFd)> {
    loop {
        // This is asked at every turn of a loop, and mostly in vain: then no memory is touched for it.
        let peek = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        let length = recv(from.as_fd().as_raw_fd(), &mut [], peek).ok()?;
        let mut bytes = vec![0; length.min(LONGEST_BYTES)];
        let mut control = cmsg_space!([std::os::fd::RawFd; 4]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let (length, cut, mut descriptors) = {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let message = recvmsg::<()>(from.as_fd().as_raw_fd(), &mut slices, Some(&mut control), flags).ok()?;
            let mut descriptors = Vec::new();
            for part in message.cmsgs().ok()? {
                if let ControlMessageOwned::ScmRights(numbers) = part {
                    // SAFETY: the kernel has just made these descriptors for this process, and nobody else knows them.
                    descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
                }
            }
            (message.bytes, message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC), descriptors)
        };
        if let (false, 1, Some(descriptor)) = (cut, descriptors.len(), descriptors.pop()) {
            bytes.truncate(length);
            return Some((bytes, descriptor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_message_and_nothing_else_does() {
        let (ours, theirs) = pair().unwrap();
        assert!(receive(&ours).is_none());
        let (reader, writer) = io::pipe().unwrap();
        nix::sys::socket::send(theirs.as_raw_fd(), b"no descriptor", MsgFlags::empty()).unwrap();
        send(&theirs, b"take this", &writer).unwrap();
        drop(writer);
        let (bytes, descriptor) = receive(&ours).unwrap();
        assert_eq!(bytes, b"take this");
        nix::unistd::write(&descriptor, b"x").unwrap();
        drop(descriptor);
        assert_eq!(io::read_to_string(reader).unwrap(), "x");
        assert!(receive(&ours).is_none());
    }
}
